/* The box in which a person names a video, tags it, adds metadata, or deletes it. */
import { ask, make, plural } from "./studio.js";

const LONGEST = { title: 200, tag: 60, name: 60, value: 300 };   // letters, as the studio takes them
const key = (text) => text.trim().replace(/\s+/g, " ").toLowerCase();
const byKey = (texts) => new Map(texts.map((text) => [key(text), text]));

/* The edits that lead from the labels of a video to others. */
export const labelEdits = (before, after) => {
  const edits = [];
  if (after.title !== before.title) edits.push({ do: "title", title: after.title });
  const had = byKey(before.tags), has = byKey(after.tags);
  for (const [each, tag] of had) if (!has.has(each)) edits.push({ do: "untag", tag });
  for (const [each, tag] of has) if (had.get(each) !== tag) edits.push({ do: "tag", tag });
  const were = new Map(Object.entries(before.metadata)), names = byKey(after.metadata.map(([name]) => name));
  for (const name of were.keys()) if (!names.has(key(name))) edits.push({ do: "metadata", name, value: null });
  for (const [name, value] of after.metadata) if (were.get(name) !== value) edits.push({ do: "metadata", name, value });
  return edits;
};

/* Labels after an edit, as stepline/library/video_edits.py makes them. */
export const labelled = ({ title, tags, metadata }, edit) => {
  if (edit.do === "title") return { title: edit.title, tags, metadata };
  if (edit.do === "metadata") {
    const others = Object.entries(metadata).filter(([name]) => key(name) !== key(edit.name));
    const more = edit.value === null ? others : [...others, [edit.name, edit.value]];
    return { title, tags, metadata: Object.fromEntries(more.sort(([a], [b]) => (key(a) < key(b) ? -1 : 1))) };
  }
  const others = tags.filter((tag) => key(tag) !== key(edit.tag));
  const more = edit.do === "untag" ? others : [...others, edit.tag];
  return { title, metadata, tags: more.sort((a, b) => (key(a) < key(b) ? -1 : 1)) };
};

const field = (properties) => make("input", { type: "text", autocomplete: "off", spellcheck: true, ...properties });
const button = (textContent, onclick, more = {}) => make("button", { type: "button", textContent, onclick, ...more });

/* The tags of a box: chips that can be taken away, and a field whose Enter adds one. */
const tagEditor = (tags, choices) => {
  const chips = make("ul", { className: "tags", ariaLabel: "Tags" });
  const suggestions = make("datalist", { id: "tag-choices" }, ...choices.map((value) => make("option", { value })));
  const input = field({ id: "new-tag", maxLength: LONGEST.tag, placeholder: "Add a tag" });
  input.setAttribute("list", suggestions.id);
  input.setAttribute("aria-label", "Add a tag");
  const show = () => chips.replaceChildren(...tags.map((tag, at) => make("li", { className: "tag" },
    make("bdi", { textContent: tag }),
    button("×", () => { tags.splice(at, 1); show(); input.focus(); }, { ariaLabel: `Remove the tag ${tag}` }))));
  const add = () => {
    const tag = input.value.trim();
    input.value = "";
    if (tag && !byKey(tags).has(key(tag))) tags.push(tag);
    show();
  };
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || !input.value.trim()) return;
    event.preventDefault();   /* else it would save the box */
    add();
  });
  show();
  return { add, node: make("div", { className: "tag-editor" }, chips, make("div", { className: "row" }, input, suggestions, button("Add", () => { add(); input.focus(); }, { ariaLabel: "Add the tag" }))) };
};

/* The metadata of a box: a line a name. */
const metadataEditor = (metadata, choices) => {
  const lines = make("div", { className: "metadata-lines" });
  const suggestions = make("datalist", { id: "name-choices" }, ...choices.map((value) => make("option", { value })));
  const addLine = (name, value) => {
    const line = make("div", { className: "row" });
    const nameField = field({ className: "name", value: name, maxLength: LONGEST.name, placeholder: "Name, such as Course" });
    nameField.setAttribute("list", suggestions.id);
    nameField.setAttribute("aria-label", "Name");
    const valueField = field({ className: "value", value, maxLength: LONGEST.value, placeholder: "Value" });
    valueField.setAttribute("aria-label", "Value");
    const more = lines.nextElementSibling;
    line.append(nameField, valueField, button("×", () => { line.remove(); more.focus(); }, { ariaLabel: `Remove ${name || "this line"}` }));
    lines.append(line);
    return nameField;
  };
  const node = make("div", {}, lines, button("Add a line", () => addLine("", "").focus(), { id: "add-line" }), suggestions);
  for (const [name, value] of Object.entries(metadata)) addLine(name, value);
  const pairs = () => [...lines.children].map((line) => [line.querySelector(".name").value.trim(), line.querySelector(".value").value.trim()]);
  return { node, pairs: () => pairs().filter(([name, value]) => name || value) };
};

/* Ask whether a video is to go, in the box itself: what goes, and what stays. */
const askRemoval = async (box, video, removed) => {
  const { files, corrections } = await ask(`/api/videos/${encodeURIComponent(video.id)}/removal`);
  const trouble = make("p", { className: "warnings", role: "alert", hidden: true });
  const keep = button("Keep it", () => box.close(), { id: "keep-video" });
  const go = button("Delete", async () => {
    try {
      await ask(`/api/videos/${encodeURIComponent(video.id)}`, { method: "DELETE", body: {} });
      box.close();
      removed();
    } catch (error) {
      trouble.textContent = error.message;
      trouble.hidden = false;
    }
  }, { id: "delete-now", className: "danger" });
  const more = corrections ? `, ${plural(corrections, "correction")}` : "";
  const title = make("h2", { id: "details-title" }, "Delete ", make("bdi", { textContent: `“${video.title}”` }), "?");
  box.replaceChildren(title,
    make("p", { textContent: `This cannot be undone. It deletes the title, tags and metadata${more} and ${plural(files.length, "file")} that Stepline wrote:` }),
    make("ul", { className: "files" }, ...files.map((name) => make("li", {}, make("bdi", { textContent: name })))),
    make("p", { textContent: "The video itself stays where it is." }), trouble,
    make("div", { className: "row ends" }, keep, go));
  keep.focus();
};

/* Open the box. video: id, title, tags, metadata. choices: tags and names in use. save: is given the edits; what it throws is
   shown in the box, which stays open. removed: called once the video is gone. */
export const openDetails = (video, choices, save, removed) => {
  const box = make("dialog", { className: "details" });
  box.setAttribute("aria-labelledby", "details-title");
  const title = field({ id: "new-title", value: video.title, maxLength: LONGEST.title, required: true });
  const tags = [...video.tags], tagPart = tagEditor(tags, choices.tags), metadata = metadataEditor(video.metadata, choices.names);
  const trouble = make("p", { className: "warnings", role: "alert", hidden: true });
  const warn = (text) => { trouble.textContent = text; trouble.hidden = false; };
  const form = make("form", { method: "dialog", noValidate: true },
    make("h2", { id: "details-title", textContent: "Title, tags and metadata" }),
    make("label", {}, "Title", title),
    make("fieldset", {}, make("legend", { textContent: "Tags" }), tagPart.node),
    make("fieldset", {}, make("legend", { textContent: "Metadata" }), metadata.node), trouble,
    make("div", { className: "row ends" },
      button("Delete", () => askRemoval(box, video, removed).catch((error) => warn(error.message)), { id: "delete", className: "danger", ariaLabel: "Delete the video" }),
      button("Cancel", () => box.close(), { id: "cancel" }), make("button", { id: "save", textContent: "Save" })));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    tagPart.add();
    const after = { title: title.value.trim(), tags, metadata: metadata.pairs() };
    if (!after.title) { title.focus(); return warn("A video needs a title. Write one."); }
    if (after.metadata.some(([name, value]) => !name || !value)) return warn("A line of metadata needs a name and a value. Fill it, or remove it.");
    if (byKey(after.metadata.map(([name]) => name)).size < after.metadata.length) return warn("Two lines of metadata have the same name. Rename one of them.");
    const edits = labelEdits(video, after);
    try {
      if (edits.length) await save(edits);
      box.close();
    } catch (error) {
      warn(error.message);
    }
    return undefined;
  });
  box.append(form);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  title.select();
  return box;
};

/* Tags as a card or a page shows them. choose: what a press on one does, if anything. */
export const tagList = (tags, choose) => make("ul", { className: "tags", ariaLabel: "Tags" }, ...tags.map((tag) => {
  const name = make("bdi", { textContent: tag });
  if (!choose) return make("li", { className: "tag" }, name);
  const chip = button("", () => choose(tag), { className: "tag", ariaLabel: `Only videos tagged ${tag}` });
  chip.append(name);
  return make("li", {}, chip);
}));
export const metadataList = (metadata) => make("dl", { className: "metadata" }, ...Object.entries(metadata).map(([name, value]) => make("div", {},
  make("dt", {}, make("bdi", { textContent: name })), make("dd", {}, make("bdi", { textContent: value })))));

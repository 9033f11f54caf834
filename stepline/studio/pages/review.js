/* Review of one video: its steps are watched, moved, split, merged, added, deleted, retitled, marked and put in order,
   next to its transcript. */
import { Corrections, inWords, standing } from "./corrections.js";
import { isShown, stepLengths, totalTimes } from "./durations.js";
import { metadataList, openDetails, tagList } from "./details.js";
import { ask, bindKeys, bindSpeed, browserCure, clock, copy, kept, listen, loadPicture, look, make, newId, pageId, part, plural, sentenceCase, shapePage, tell, tenths } from "./studio.js";
import { askReading } from "./reading.js";
import { Timeline } from "./timeline.js";
import { Transcript } from "./transcript.js";

const MARKS = { unjudged: "Not judged", seen: "Seen", placed: "Placed", doubtful: "Placed?", said_only: "Said only", not_found: "Not found" };
const MACHINE_MARKS = ["unjudged", "doubtful"];   // that no person chooses
const FORMATS = {
  json: "JSON", html: "Web page", vtt: "Steps as subtitles (vtt)", srt: "Steps as subtitles (srt)", "captions-vtt": "What is said (vtt)", "captions-srt": "What is said (srt)", chapters: "YouTube chapters", jsonld: "How-to for search engines (JSON-LD)", markdown: "Markdown",
  recipe: "Recipe for search engines (JSON-LD)", docx: "Word (docx)", mp4: "Video with chapters (mp4)", mkv: "Video with chapters (mkv)", clips: "Clips of the steps (zip of mp4)", otio: "Video editors (otio)", labelstudio: "Label Studio",
};
const SAVED = { saved: "All changes saved", saving: "Saving", offline: "Not saved yet: the studio does not answer, trying again" };
const NEW = 4;        // s that a new step lasts
const NEAR = 10;      // s around a step from which its picture is chosen
const COMPARED = 2000;   // ms in which a short video is compared with its record, maybe before this page listens
const LONGEST_TITLE = 200;   // letters, as the studio takes it
const TYPING = 900;   // ms after the last letter before a text is saved
const player = part("player"), list = part("list"), rows = new Map();
const video = `/api/videos/${pageId()}`;
shapePage(player);
let timeline = null, transcript = null, current = null, loop = null, frame = 1 / 30;

const steps = () => edited.steps;
const index = (id = current) => steps().findIndex((step) => step.id === id);
const chosen = () => steps()[index()];
const total = () => edited.record.video.duration || player.duration || 1;
const hundredth = (second) => Math.round(second * 100) / 100;
const here = () => hundredth(Math.min(player.currentTime, total()));
const seek = (second) => { player.currentTime = Math.max(0, Math.min(second, total())); };
const named = (id) => {
  const text = edited.machine[id]?.text;   /* of a deleted step, whose number others have now */
  return index(id) >= 0 ? `step ${index(id) + 1}` : text ? `“${text}”` : "a step";
};

const edited = new Corrections(pageId(), {
  changed: () => render(),
  state: (name, why) => {
    part("saved").textContent = why ? `Not saved yet: ${browserCure(why)}` : SAVED[name];
    part("saved").className = `saved ${name}`;
  },
  saved: ({ kept, written }, { edits = [] }) => {
    const made = new Set(edits.map(({ do: act, id }) => act === "add" && id));
    const told = [
      ...written.map((id) => `${named(id)} is ${made.has(id) ? "made of the sentence" : "written again"}`),
      ...Object.entries(kept).map(([id, reason]) => `${named(id)} ${made.has(id) ? "has the words of the sentence" : "stays as it is"}: ${reason}`),
    ];
    if (told.length) part("told-words").textContent = told.join("; ");
  },
  refused: (message) => trouble(`Not saved: ${message}`),
  conflict: (mine, reply) => new Promise((decide) => {
    const dialog = part("clash"), words = (edits) => edits.map((edit) => inWords(edit, named)).join("; ");
    part("clash-by").textContent = reply.by;
    part("clash-theirs").textContent = words(reply.edits) || "undid a change";
    part("clash-mine").textContent = words(mine.edits);
    let keep = false;
    part("keep-mine").onclick = () => { keep = true; dialog.close(); };
    part("keep-theirs").onclick = () => dialog.close();
    dialog.onclose = () => decide(keep);
    dialog.showModal();
  }),
});

const trouble = (text) => {
  part("trouble").textContent = text;
  part("trouble").hidden = !text;
};

/* ---- what a person does; each is one correction ---- */

const change = (id, fields) => edited.edit({ do: "change", step: id, ...fields });
const spanHere = (step) => {
  const start = hundredth(Math.min(here(), Math.max(0, total() - 0.5)));
  return { start, end: hundredth(Math.min(total(), start + (step && step.start !== null ? step.end - step.start : NEW))) };
};
/* Where the words of a step are: where it most likely is, if a person says that it is shown. */
const spanOfWords = ({ said }) => {
  const start = hundredth(Math.min(said[0], Math.max(0, total() - 0.5)));
  return { start, end: hundredth(Math.min(total(), Math.max(said[1], start + NEW))) };
};
const mark = (id, status) => {
  const step = steps()[index(id)], words = `step ${index(id) + 1}: ${MARKS[status].toLowerCase()}`;
  if (step.start !== null || !["seen", "placed"].includes(status)) {
    change(id, { status });
    return tell(words);
  }
  const span = step.said ? spanOfWords(step) : spanHere(step);
  change(id, { status, span });
  tell(`${words}, ${tenths(span.start)} to ${tenths(span.end)}${step.said ? ", where it is said" : ", where the video is"}`);
};
const setEnd = (which) => {
  const step = chosen(), at = here();
  if (!step) return;
  const span = step.start === null ? spanHere(step) : { start: step.start, end: step.end, [which]: at };
  if (span.end - span.start < 0.1) return tell(`the ${which} of a step cannot be ${which === "start" ? "after its end" : "before its start"}`);
  place(step.id, span);
};
/* Who says where a step is says that it is shown. */
const place = (id, span) => {
  change(id, { span, status: "seen" });
  tell(`step ${index(id) + 1}: seen from ${tenths(span.start)} to ${tenths(span.end)}`);
};
const startOf = (step) => step.start ?? step.said?.[0];
const addStep = (fields, start = fields.span.start) => {
  const second = (step) => (fields.sentence === undefined ? step.start : startOf(step)) ?? Infinity;
  const before = steps().filter((step) => second(step) <= start).at(-1);
  const id = newId();
  edited.edit({ do: "add", id, after: before ? before.id : null, ...fields });
  choose(id, false);
  return id;
};
const add = () => {
  const id = addStep({ text: "New step", span: spanHere() });
  const { text } = rows.get(id);
  text.focus();
  text.select();
};
const remove = (id = current) => {
  const at = index(id);
  if (at < 0) return;
  edited.edit({ do: "delete", step: id });
  tell(`step ${at + 1} deleted, undo brings it back`);
  const next = steps()[Math.min(at, steps().length - 1)];
  choose(next ? next.id : null, false);
  if (next) rows.get(next.id).number.focus();
};
const split = () => {
  const step = chosen(), at = here();
  if (!step || step.start === null || at <= step.start || at >= step.end) return tell("the video is not inside the step, so go to the second where it splits");
  const id = newId();
  edited.edit({ do: "split", step: step.id, at, id, texts: [step.text, step.text] });
  tell(`split at ${tenths(at)}`);
  choose(id, false);
  rows.get(id).text.focus();
  rows.get(id).text.select();
};
const merge = () => {
  const step = chosen(), next = steps()[index() + 1];
  if (!step || !next) return tell("there is no next step to merge with");
  if (step.kind !== next.kind) return tell("a step to do and a step to avoid are not merged; mark both alike first");
  edited.edit({ do: "merge", steps: [step.id, next.id], text: `${step.text}; ${next.text}` });
  tell("merged with the next step");
};
const order = (ids, words) => {
  if (ids.every((id, at) => id === steps()[at].id)) return tell("the steps are in that order");
  edited.edit({ do: "order", steps: ids });
  tell(words);
};
const sort = () => {
  let last = 0;
  const timed = steps().map((step) => ({ id: step.id, at: last = step.start ?? step.said?.[0] ?? last }));
  order(timed.sort((a, b) => a.at - b.at).map(({ id }) => id), "sorted by time");
};
const shift = (by) => {
  const ids = steps().map(({ id }) => id), from = index(), to = from + by;
  if (from < 0 || to < 0 || to >= ids.length) return;
  ids.splice(to, 0, ...ids.splice(from, 1));
  order(ids, `now step ${to + 1}`);
};
const undo = () => {
  const last = edited.lastChange();
  if (last) edited.revert(last.id);
  else tell("nothing of yours to undo");
};
const redo = () => {
  const last = edited.lastUndo();
  if (last) edited.revert(last.id);
  else tell("nothing to redo");
};

/* ---- the player ---- */

const playStep = (id) => {
  choose(id);
  player.play().catch(() => { /* the browser may want a second press */ });
};
const setLoop = (id) => {
  const step = steps()[index(id)];
  loop = step && step.start !== null ? id : null;
  part("loop").setAttribute("aria-pressed", String(Boolean(loop)));
  part("loop").textContent = loop ? `Loops step ${index(loop) + 1}` : "Loop step";
  if (loop && !(step.start <= player.currentTime && player.currentTime < step.end)) seek(step.start);
};
const step = (by) => {
  player.pause();
  seek((Math.floor(player.currentTime / frame + 1e-3) + by + 0.01) * frame);   /* a little inside, where no rounding errs */
};
const follow = () => {
  const second = player.currentTime;
  part("second").textContent = tenths(second);
  timeline?.show(second, !player.paused);
  transcript?.show(second, !player.paused);
  const looped = loop && steps()[index(loop)];
  if (looped && looped.start !== null && !player.paused && !player.seeking && (second >= looped.end || second < looped.start - 0.3)) seek(looped.start);
  for (const each of steps()) {
    rows.get(each.id)?.node.classList.toggle("now-playing", each.start !== null && each.start <= second && second < each.end);
  }
};
const tick = () => { follow(); if (!player.paused) requestAnimationFrame(tick); };

/* ---- the list ---- */

const choose = (id, go = true) => {
  const before = current;
  current = id;
  const found = chosen();
  for (const each of [before, id]) {
    const row = rows.get(each);
    if (!row) continue;
    row.node.classList.toggle("chosen", each === id);
    row.tools.hidden = each !== id;
    if (each !== id) row.scrub.hidden = true;
    if (each === id) row.node.setAttribute("aria-current", "true");
    else row.node.removeAttribute("aria-current");
  }
  if (before !== id && timeline) {
    timeline.update(drawn(), edited.machine, current);
    if (go) timeline.reveal(id);
  }
  if (found && go) {
    const second = startOf(found);
    if (second !== undefined && second !== null) seek(second);
  }
};
const walk = (by) => {
  const next = steps()[current === null ? 0 : Math.min(steps().length - 1, Math.max(0, index() + by))];
  if (!next) return;
  choose(next.id);
  rows.get(next.id).number.focus({ preventScroll: true });
  rows.get(next.id).node.scrollIntoView({ block: "nearest" });
};

const makeRow = (id) => {
  const button = (textContent, act, more = {}) => make("button", { type: "button", textContent, onclick: () => { choose(id, false); act(); }, ...more });
  const row = {
    number: make("button", { type: "button", className: "number", onclick: () => playStep(id) }),
    image: make("img", { alt: "" }),
    text: make("textarea", { className: "text", rows: 1, maxLength: 2000, spellcheck: true }),
    times: make("span", { className: "times" }),
    lengths: make("span", { className: "times lengths" }),
    mark: make("select", { className: "mark", onchange: () => mark(id, row.mark.value) }),
    avoid: make("button", { type: "button", className: "avoid-switch", textContent: "Avoid" }),
    machine: make("ul", { className: "machine", ariaLabel: "What Stepline found" }),
    scrub: make("div", { className: "scrub controls", role: "group", ariaLabel: "Picture of the step", hidden: true }),
    tools: make("div", { className: "controls tools", role: "group", hidden: true }),
  };
  row.mark.append(...Object.entries(MARKS).map(([value, textContent]) => make("option", { value, textContent, disabled: MACHINE_MARKS.includes(value) })));
  row.avoid.onclick = () => change(id, { kind: steps()[index(id)].kind === "avoid" ? "do" : "avoid" });
  row.tools.append(
    button("Play", () => playStep(id)), button("Loop", () => setLoop(loop === id ? null : id)), button("Start here", () => setEnd("start")),
    button("End here", () => setEnd("end")), button("Split here", split), button("Merge with next", merge),
    button("Picture", () => choosePicture(id)), button("Copy link", () => copyLink(steps()[index(id)].start)), button("Up", () => shift(-1)), button("Down", () => shift(1)), button("Delete", () => remove(id), { className: "danger" }),
  );
  let typing = 0;
  const save = () => {
    clearTimeout(typing);
    const at = steps()[index(id)], text = row.text.value.trim();
    if (at && text && sentenceCase(text) !== sentenceCase(at.text)) change(id, { text });
    else if (at && !text && document.activeElement !== row.text) row.text.value = sentenceCase(at.text);
  };
  row.text.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(save, TYPING); fit(row.text); });
  row.text.addEventListener("blur", save);
  row.text.addEventListener("focus", () => choose(id, false));
  row.text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;   /* an input method's Enter takes its words */
    event.preventDefault();
    save();
    row.number.focus();
  });
  const thumb = make("div", { className: "thumb" }, row.image, row.number);
  const meta = make("div", { className: "meta" }, row.times, row.lengths, row.mark, row.avoid);
  row.node = make("li", {}, thumb, make("div", { className: "what" }, row.text, meta, row.machine, row.tools, row.scrub));
  row.node.addEventListener("click", (event) => { if (!event.target.closest("button, select, textarea")) choose(id); });
  row.node.dataset.id = id;
  rows.set(id, row);
  return row;
};
const fit = (text) => {
  if (CSS.supports("field-sizing", "content")) return;
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
};
/* The second that a step's picture shows, undefined for a step without a time. */
const pictureOf = (each) => edited.pictureOf(each) ?? each.at ?? (each.start === null ? each.said?.[0] : (each.start + each.end) / 2);
/* Where a step's bar is: where it is shown, else where it is said. */
const barOf = (each) => {
  const shown = each.start !== null && [each.start, each.end];
  const place = isShown(each) ? shown : each.said || shown;
  return place ? { start: place[0], end: Math.min(place[1], total()) } : null;
};
const timesOf = (each) => {
  if (isShown(each)) return `${tenths(each.start)}–${tenths(each.end)}`;
  return each.said ? `said ${clock(each.said[0])}–${clock(each.said[1])}` : "no time";
};

/* The picture of a step, chosen on a scrubber; the player shows each. */
const choosePicture = (id) => {
  const step = steps()[index(id)], { scrub } = rows.get(id);
  if (!scrub.hidden || !isShown(step)) {
    scrub.hidden = true;
    return isShown(step) || tell("a step has a picture where it is shown; mark it as seen first");
  }
  const range = make("input", { type: "range", step: 0.1, ariaLabel: "Second of the picture" }), second = make("output", { className: "clock" });
  range.min = Math.max(0, step.start - NEAR).toFixed(1);
  range.max = Math.min(total(), step.end + NEAR).toFixed(1);
  range.value = pictureOf(step);
  const show = () => {
    player.pause();
    seek(Number(range.value));
    second.textContent = range.ariaValueText = tenths(Number(range.value));
  };
  const close = () => {
    scrub.hidden = true;
    rows.get(id).number.focus({ preventScroll: true });
  };
  range.addEventListener("input", show);
  range.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    if (event.key === "Enter") use();
    else close();
  });
  const use = () => {
    change(id, { at: hundredth(Number(range.value)) });
    tell(`step ${index(id) + 1} shows ${tenths(Number(range.value))}`);
    close();
  };
  scrub.replaceChildren(range, second, make("button", { type: "button", textContent: "Use this picture", onclick: use }), make("button", { type: "button", textContent: "Cancel", onclick: close }));
  scrub.hidden = false;
  setLoop(null);
  show();
  range.focus({ preventScroll: true });
};

/* What the machine had said of a changed field, and the way back to it. */
const machineRow = (id, field, value) => {
  const words = {
    text: () => `“${sentenceCase(value)}”`, span: () => (value ? `${tenths(value.start)}–${tenths(value.end)}` : "no place"),
    status: () => MARKS[value ?? "unjudged"].toLowerCase(), kind: () => (value === "avoid" ? "to avoid" : "to do"),
    at: () => `picture of ${value === null ? "no second" : tenths(value)}`,
  }[field];
  if (field === "at" && steps()[index(id)].at === null) return [];   /* the place was moved away from it */
  const back = make("button", { type: "button", textContent: "Restore", ariaLabel: `Restore Stepline's ${field} of ${named(id)}` });
  back.onclick = () => change(id, { [field]: value });
  return [make("li", {}, make("span", {}, "Stepline: ", make("bdi", { textContent: words() })), " ", ...(value === null ? [] : [back]))];
};
const updateRow = (row, each, at) => {
  const looks = JSON.stringify([each, at, each.id === current, edited.machine[each.id], total(), Boolean(timeline)]);
  if (row.looks === looks && (row.text.value === sentenceCase(each.text) || document.activeElement === row.text)) return;
  row.looks = looks;
  const kind = look(each), second = pictureOf(each);
  row.node.className = `step ${kind}${each.id === current ? " chosen" : ""}`;
  row.node.id = `step-${at + 1}`;
  row.number.textContent = at + 1;
  row.number.ariaLabel = `Play step ${at + 1}`;
  const source = second === undefined || !timeline?.video ? "" : `${video}/pictures/${Math.min(total() - 0.1, second).toFixed(1)}.jpg`;
  if (source) loadPicture(row.image, source);
  row.image.hidden = !source;
  row.text.ariaLabel = `Text of step ${at + 1}`;
  if (document.activeElement !== row.text || row.text.value === row.shown) row.text.value = sentenceCase(each.text);
  row.shown = sentenceCase(each.text);
  fit(row.text);
  row.times.textContent = timesOf(each);
  row.lengths.textContent = stepLengths(each);
  row.mark.value = kind;
  row.mark.ariaLabel = `Is step ${at + 1} shown`;
  row.avoid.setAttribute("aria-pressed", String(each.kind === "avoid"));
  row.avoid.ariaLabel = `Step ${at + 1} is to avoid`;
  row.tools.ariaLabel = `Step ${at + 1}`;
  row.tools.hidden = each.id !== current;
  const said = JSON.stringify([edited.machine[each.id], each.doubt]);
  if (row.said === said) return;
  row.said = said;
  const doubts = each.doubt ? [make("li", {}, make("span", {}, "Speaks against it: ", make("bdi", { textContent: each.doubt })))] : [];
  row.machine.replaceChildren(...doubts, ...Object.entries(edited.machine[each.id] || {}).flatMap(([field, value]) => machineRow(each.id, field, value)));
  row.machine.hidden = !row.machine.children.length;
};

const drawn = () => steps().map((each, at) => ({ ...each, number: at + 1, look: look(each), title: sentenceCase(each.text), place: barOf(each), dashed: !isShown(each) }));

let fallbackTitle = "";   /* of a video without a title: its id */
const showTitle = (title) => {
  part("title").textContent = title;
  document.title = `${title} · review`;
};
const saveTitle = () => {
  const title = part("title").textContent.trim().slice(0, LONGEST_TITLE), before = edited.title || fallbackTitle;
  if (title && title !== before) edited.edit({ do: "title", title });
  else showTitle(before);
};
/* Whether a part shows something else by now; a button made anew under the mouse takes no click. */
const isOutdated = (id, ...shown) => {
  const looks = JSON.stringify(shown), isOther = part(id).dataset.looks !== looks;
  part(id).dataset.looks = looks;
  return isOther;
};
const showLabels = () => {
  const { tags, metadata } = edited.labels;
  if (!isOutdated("labels", tags, metadata)) return;
  part("labels").replaceChildren(...(tags.length ? [tagList(tags)] : []), ...(Object.keys(metadata).length ? [metadataList(metadata)] : []));
  part("labels").hidden = !part("labels").children.length;
};
let reading = null;   /* the job that reads the video again */
const readAgain = () => askReading(video, async (job) => {
  reading = job;
  tell("the video is read again, and its new steps appear here");
  showReading(await ask(`/api/jobs/${job}`));   /* it may have ended before its number was here */
}).catch(({ message }) => trouble(message));
const showReading = ({ id, state, stage, done, error }) => {
  if (id !== reading) return;
  if (state === "done") location.reload();
  else if (error) trouble(error);
  else if (stage) tell(`${stage}: ${Math.round(100 * done)} %`);
};
const editDetails = async () => {
  const { tags, metadata } = await ask("/api/labels").catch(() => ({ tags: {}, metadata: {} }));   /* suggestions alone */
  const video = { ...edited.labels, title: edited.title || fallbackTitle, id: pageId() };
  openDetails(video, { tags: Object.keys(tags), names: Object.keys(metadata) }, (edits) => edited.edit(...edits), () => location.assign("/"));
};
const render = () => {
  if (edited.labels) showLabels();
  if (document.activeElement !== part("title") && edited.record) showTitle(edited.title || fallbackTitle);
  const focused = document.activeElement, ids = new Set(steps().map(({ id }) => id));
  if (!ids.has(current)) current = null;
  for (const [id, row] of rows) {
    if (ids.has(id)) continue;
    const { value } = row.text;
    if (document.activeElement === row.text && value !== row.shown) trouble(`The step that you write was deleted. Your words were: “${value}”`);
    row.node.remove();
    rows.delete(id);
  }
  let place = list.firstElementChild;
  steps().forEach((each, at) => {
    const row = rows.get(each.id) || makeRow(each.id);
    updateRow(row, each, at);
    if (row.node === place) place = place.nextElementSibling;
    else list.insertBefore(row.node, place);
  });
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  part("empty").hidden = steps().length > 0;
  list.hidden = !steps().length;
  const times = totalTimes(steps());
  part("facts").replaceChildren(...[plural(steps().length, "step"), clock(total()), times && `steps: ${times}`, plural(edited.stepCorrections.length, "correction")]
    .filter(Boolean).map((textContent) => make("span", { textContent })));
  part("undo").disabled = part("undo-words").disabled = !edited.lastChange();
  part("redo").disabled = !edited.lastUndo();
  const corrected = edited.stepCorrections.length > 0;
  part("read-again").disabled = corrected;
  part("read-again").title = corrected ? "Its steps were corrected. Undo the corrections, or delete the video and add it again." : "";
  timeline?.update(drawn(), edited.machine, current);
  timeline?.setSentences(edited.sentences);
  transcript?.update(edited.sentences, citing());
  renderDeleted(ids);
  renderHistory();
  if (loop && !ids.has(loop)) setLoop(null);
};

/* sentence -> [id, number] of the steps that rest on it. */
const citing = () => {
  const cited = new Map(), { heardSentences } = edited;
  steps().forEach(({ id, sources }, at) => sources.forEach((source) => {
    const sentence = heardSentences[source]?.id;
    cited.set(sentence, [...(cited.get(sentence) || []), [id, at + 1]]);
  }));
  return cited;
};

const renderDeleted = (ids) => {
  const gone = Object.entries(edited.machine).filter(([id]) => !ids.has(id));
  const stand = standing(edited.history);
  if (!isOutdated("deleted-list", gone, stand.map(({ id }) => id))) return;
  part("deleted").hidden = !gone.length;
  part("deleted-count").textContent = gone.length;
  part("deleted-list").replaceChildren(...gone.map(([id, said]) => {
    const by = stand.findLast(({ edits }) => (edits || []).some((edit) => edit.step === id || (edit.steps || []).includes(id)));
    const words = by?.edits.some((edit) => edit.do === "merge" && edit.steps.includes(id)) ? "Undo the merge" : "Restore";
    const back = make("button", { type: "button", textContent: words, ariaLabel: `${words}: “${said.text}”`, onclick: () => edited.revert(by.id) });
    return make("li", {}, make("span", { className: "what-kind", textContent: by ? by.by : "" }), make("bdi", { textContent: said.text }), ...(by ? [back] : []));
  }));
};
const renderHistory = () => {
  if (part("history").hidden || !isOutdated("changes", edited.history.length, steps().map(({ id }) => id))) return;
  const stand = new Set(standing(edited.history).map(({ id }) => id)), all = new Map(edited.history.map((each) => [each.id, each]));
  part("changes").replaceChildren(...[...edited.history].reverse().map((each) => {
    let target = each, undone = 0;
    for (; target.undoes; undone += 1) target = all.get(target.undoes);
    const words = target.edits.map((edit) => inWords(edit, named)).join("; ");
    const back = make("button", { type: "button", textContent: each.undoes ? "Redo" : "Undo", ariaLabel: `${each.undoes ? "Redo" : "Undo"}: ${words}`, onclick: () => edited.revert(each.id) });
    const when = make("time", { textContent: new Date(each.when * 1000).toLocaleString(), dateTime: new Date(each.when * 1000).toISOString() });
    const told = `${undone % 2 ? "undid: " : undone ? "redid: " : ""}${words}`;
    const row = make("li", {}, make("b", { textContent: each.by }), " ", when, make("bdi", { textContent: told }), ...(stand.has(each.id) && !(undone && undone % 2 === 0) ? [back] : []));
    row.classList.toggle("undone", !stand.has(each.id));
    return row;
  }));
};

/* ---- the page ---- */

const jump = () => {
  const time = /^#t=(\d+(?:\.\d+)?)$/.exec(location.hash), at = /^#step-(\d+)$/.exec(location.hash);
  if (time) seek(Number(time[1]));
  else if (at && steps()[at[1] - 1]) choose(steps()[at[1] - 1].id);
};

const begin = async () => {
  const by = part("by");
  by.value = kept.get("stepline-name", "me");
  edited.by = by.value;
  by.addEventListener("change", () => {
    by.value = edited.by = by.value.trim() || "me";
    kept.set("stepline-name", by.value);
    render();
  });
  const card = await ask(video);
  fallbackTitle = card.title;
  showTitle(card.title);
  part("title").addEventListener("blur", saveTitle);
  part("title").addEventListener("keydown", (event) => {
    event.stopPropagation();   /* its letters are no keys of the page */
    if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
    if (event.key === "Escape") showTitle(edited.title || fallbackTitle);
    event.preventDefault();
    part("title").blur();
  });
  frame = 1 / (card.frame_rate || 30);
  part("follow").href = `/follow/${pageId()}`;
  part("output").append(...card.formats.map((name) => make("option", { value: name, textContent: FORMATS[name] || name })));
  await edited.load(card.library);
  timeline = new Timeline(part("timeline"), {
    video: card.media ? video : null, total: total(), seek,
    peaks: card.media ? null : [],
    moved: place,
    chosen: (id, go) => choose(id, go),
  });
  if (card.media) player.src = `${video}/media`;
  const larger = "`--model whisper-base`", { warnings } = edited.record;
  const offered = warnings.some((text) => text.includes(larger)) && (await ask("/api/choices")).recognisers.includes("whisper-base");
  const cure = offered ? "“Read again” with Whisper base" : "Whisper base, once it is installed (`stepline weights get whisper-base`),";
  part("warnings").replaceChildren(...warnings.map((text) => make("li", { textContent: browserCure(text.replace(larger, cure)) })));
  part("warnings").hidden = !warnings.length;
  if (!card.media) trouble("The video's file is not where the record says, or is still being compared with the record. You cannot watch it yet, but you can correct its steps.");
  transcript = new Transcript({
    seek, addStep, play: (second) => { seek(second); player.play().catch(() => {}); },
    take: (edits, base = edited.base) => edited.take({ edits, base }),
    revision: () => edited.base,
    isMade: (sentence) => edited.madeSteps.some((add) => add.sentence === sentence),
    chooseStep: (id) => { view("steps"); choose(id); rows.get(id).node.scrollIntoView({ block: "nearest" }); rows.get(id).number.focus({ preventScroll: true }); },
  });
  render();
  transcript.reopen();
  player.addEventListener("loadedmetadata", jump, { once: true });
  const lookAgain = async () => { if (!card.media && (await ask(video)).media) location.reload(); };
  let deleted = false;
  /* What was asked before a deletion may fail after it, and must not hide that the video is gone. */
  const failed = (error) => { if (!deleted) trouble(error.message); };
  listen({
    video: ({ id, revision, removed }) => {
      if (id !== pageId()) return;
      if (removed) { deleted = true; trouble("This video was deleted from the library."); }
      else edited.heard(revision).catch(failed);
    },
    files: () => lookAgain().catch(failed), job: showReading,
  },
    () => edited.heard(Infinity).catch(failed));
  if (!card.media) setTimeout(() => lookAgain().catch(failed), COMPARED);
  if (card.media) {
    timeline.peaks = (await ask(`${video}/waveform`).catch(() => ({ peaks: [] }))).peaks;   /* a silent video has none */
    timeline.drawWave();
  }
};

for (const kind of ["timeupdate", "seeking", "seeked", "loadedmetadata"]) player.addEventListener(kind, follow);
player.addEventListener("play", tick);
player.addEventListener("ended", () => { if (loop) playStep(loop); });
addEventListener("hashchange", jump);
/* What was typed last is kept, however soon the page is left; the transcript has a draft. */
addEventListener("pagehide", () => { if (document.activeElement.matches("#list textarea, #title")) document.activeElement.blur(); });
const faster = bindSpeed(player, part("speed"));
const toggleLoop = () => setLoop(loop ? null : current ?? steps()[0]?.id);
const toggleHistory = () => {
  const hidden = part("history").hidden = !part("history").hidden;
  part("show-history").setAttribute("aria-expanded", String(!hidden));
  renderHistory();
};
const copyLink = (second) => copy(`${location.origin}${location.pathname}#t=${typeof second === "number" ? second : here()}`, "link");
const toggle = () => { if (player.paused) player.play().catch(() => {}); else player.pause(); };
const acts = {
  undo, "undo-words": undo, redo, add, sort, loop: toggleLoop, "copy-link": () => copyLink(), "frame-back": () => step(-1), "frame-on": () => step(1),
  "zoom-in": () => timeline.setZoom(2), "zoom-out": () => timeline.setZoom(0.5), "show-history": toggleHistory, "edit-details": editDetails, "read-again": readAgain,
};
for (const [id, act] of Object.entries(acts)) part(id).addEventListener("click", act);
/* Where there is no room for both, the steps or the transcript are shown. */
const view = (name) => {
  document.body.classList.toggle("hears", name === "transcript");
  for (const each of ["steps", "transcript"]) part(`view-${each}`).setAttribute("aria-pressed", String(each === name));
};
part("view-steps").addEventListener("click", () => view("steps"));
part("view-transcript").addEventListener("click", () => view("transcript"));
const save = async (format) => {
  tell(`${format} is being made`);
  const reply = await fetch(`${video}/steps?format=${encodeURIComponent(format)}`);
  if (!reply.ok) throw new Error((await reply.json()).error);
  const name = /filename\*?=(?:utf-8'')?"?([^";]+)/i.exec(reply.headers.get("Content-Disposition") || "");
  const link = make("a", { href: URL.createObjectURL(await reply.blob()), download: name ? decodeURIComponent(name[1]) : `steps.${format}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  tell(`${link.download} is saved`);
};
part("output").addEventListener("change", ({ target }) => {
  if (target.value) save(target.value).catch(({ message }) => { tell(""); trouble(message); });
  target.value = "";
});
const onStep = (act) => () => { if (chosen()) act(); else tell("choose a step first with j or k"); };
bindKeys([
  [["Space"], "plays and pauses", { " ": toggle }],
  [["←", "→"], "5 s back and on", { ArrowLeft: () => seek(player.currentTime - 5), ArrowRight: () => seek(player.currentTime + 5) }],
  [[",", "."], "a frame back and on", { ",": () => step(-1), ".": () => step(1) }],
  [["<", ">"], "slower and faster", { "<": () => faster(-1), ">": () => faster(1) }],
  [["j", "k"], "next and previous step", { j: () => walk(1), k: () => walk(-1) }],
  [["l"], "loops the step", { l: toggleLoop }],
  [["e"], "edits the step's text, and Enter saves it", { e: onStep(() => rows.get(current).text.focus()) }],
  [["p"], "chooses its picture: ← →, Enter takes it", { p: onStep(() => choosePicture(current)) }],
  [["[", "]"], "the step starts, ends here", { "[": onStep(() => setEnd("start")), "]": onStep(() => setEnd("end")) }],
  [["← → on a bar"], "moves it by 0.1 s, with Shift by 1 s, and Tab goes to its ends", {}],
  [["a"], "adds a step here", { a: add }],
  [["s"], "splits the step here", { s: onStep(split) }],
  [["m"], "merges it with the next", { m: onStep(merge) }],
  [["x", "Del"], "deletes it", { x: onStep(() => remove()), Delete: onStep(() => remove()) }],
  [["1", "2", "3"], "marks it as seen, as said only, or as to avoid", {
    1: onStep(() => mark(current, "seen")), 2: onStep(() => mark(current, "said_only")), 3: onStep(() => rows.get(current).avoid.click()),
  }],
  [["J", "K"], "puts it one lower, one higher", { J: onStep(() => shift(1)), K: onStep(() => shift(-1)) }],
  [["o"], "sorts the steps by time", { o: sort }],
  [["z", "Z"], "undo and redo, also with Ctrl+Z and Ctrl+Y", { z: undo, Z: redo, "Ctrl+z": undo, "Ctrl+y": redo, "Shift+z": redo, "Ctrl+Shift+z": redo }],
  [["w"], "goes to the transcript", { w: () => { view("transcript"); transcript?.focus(); } }],
  [["↑", "↓"], "in the transcript: the sentence before and after", {}],
  [["Enter", "Esc"], "in the transcript: edits the words and saves them, leaves them as they were", {}],
  [["s", "j", "Del"], "in the transcript: makes a step, joins with the next sentence, drops the sentence", {}],
  [["+", "−"], "zooms the timeline", { "+": acts["zoom-in"], "-": acts["zoom-out"] }],
  [["h"], "shows the history", { h: toggleHistory }],
  [["t"], "edits title, tags and metadata, or deletes the video", { t: editDetails }],
  [["c"], "copies the link to this second", { c: () => copyLink() }],
]);
begin().catch((error) => trouble(error.message));

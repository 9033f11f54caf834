/* The library: its videos as cards, search over their moments, files that come in, and the jobs that understand them. */
import { metadataList, openDetails, tagList } from "./details.js";
import { readingFields } from "./reading.js";
import { ask, bindKeys, browserCure, clock, kept, listen, loadPicture, make, newId, part, plural, RequestError, save, sentenceCase, tell, verdictWords } from "./studio.js";

const PIECE = 4 << 20;      // bytes of an upload that are sent at once
const PATIENCE = 2000;      // ms before a piece that did not get through is sent again, from where the studio is
const TYPING = 250;         // ms
const STAGES = { waiting: "waits", running: "runs", done: "done", failed: "failed", cancelled: "cancelled" };

const trouble = (error) => {
  part("trouble").textContent = error ? browserCure(error.message) : "";
  part("trouble").hidden = !error;
};
const guarded = (act) => (...all) => Promise.resolve(act(...all)).then(() => {}, trouble);

/* ---- cards ---- */

const card = (video) => {
  const picture = video.picture ? [loadPicture(make("img", { alt: "" }), video.picture)] : [];
  if (video.damage) {
    return make("li", { className: "card" }, make("div", { className: "frame" }),
      make("div", {}, make("bdi", { textContent: video.title }), make("p", { textContent: video.damage }), make("p", {}, make("span", { className: "badge", textContent: "damaged" }))));
  }
  const id = encodeURIComponent(video.id), named = (words) => `${words}: ${video.title}`;
  const unjudged = video.steps - video.seen - video.placed - video.said_only - video.not_found;
  const facts = [
    video.duration === null ? "" : clock(video.duration), plural(video.steps, "step"), video.seen && `${video.seen} seen`,
    video.placed > video.doubtful && `${video.placed - video.doubtful} placed`, video.doubtful && `${video.doubtful} placed?`,
    video.said_only && `${video.said_only} said only`, video.not_found && `${video.not_found} not found`, unjudged && `${unjudged} not judged`,
    video.state === "new" ? "" : video.state, video.corrections && plural(video.corrections, "correction"),
  ].filter(Boolean).map((textContent) => make("span", { textContent }));
  const [why] = (video.no_steps_reason || "").split("; ");   /* the review says the cure */
  const problem = sentenceCase(why) || (video.warnings ? plural(video.warnings, "warning") : "");
  const marks = [video.tags.length ? tagList(video.tags, onlyTag) : [], Object.keys(video.metadata).length ? metadataList(video.metadata) : []].flat();
  const row = make("li", { className: "card" },
    make("div", { className: "frame" }, ...picture),
    make("div", {},
      make("a", { href: `/video/${id}` }, make("bdi", { textContent: video.title })),
      make("p", { className: "facts" }, ...facts),
      ...(problem ? [make("p", { className: "problem", textContent: problem })] : []),
      ...marks,
      make("p", { className: "actions" },
        make("a", { className: "permalink", href: `/video/${id}`, textContent: "Review", ariaLabel: named("Review") }),
        make("a", { className: "permalink", href: `/follow/${id}`, textContent: "Follow", ariaLabel: named("Follow along") }),
        make("button", { type: "button", className: "permalink", textContent: "Share", ariaLabel: named("Share"), onclick: () => askShare([video.id]) }),
        make("button", { type: "button", className: "permalink edit", textContent: "Edit", ariaLabel: named("Edit title, tags and metadata, or delete"), onclick: guarded(() => edit(video)) }))));
  row.dataset.id = video.id;
  return row;
};
/* A card that says what it said stays the same node: nothing moves from under a finger, and its picture is not loaded again. */
const drawn = new Map();   // video id -> its card, and what the card says
const drawCard = (video) => {
  const words = JSON.stringify(video), before = drawn.get(video.id);
  if (before?.words === words && !before.node.querySelector("img:not([data-picture])")) return before.node;
  const node = card(video);
  drawn.set(video.id, { words, node });
  return node;
};
const drawCards = (nodes) => {
  const list = part("cards");
  let place = list.firstElementChild;
  for (const node of nodes) {
    if (node === place) place = place.nextElementSibling;
    else list.insertBefore(node, place);
  }
  for (const gone of [...list.children].slice(nodes.length)) {
    gone.remove();
    if (drawn.get(gone.dataset.id)?.node === gone) drawn.delete(gone.dataset.id);   /* its picture may not have been loaded */
  }
};
let labels = { tags: {}, metadata: {} };   // in use: how many videos have each
const correct = (video, edits) => {
  const body = { id: newId(), by: kept.get("stepline-name", "me"), base: video.revision, edits };
  return ask(`/api/videos/${encodeURIComponent(video.id)}/corrections`, { method: "POST", body });
};
const edit = (video) => {
  const choices = { tags: Object.keys(labels.tags), names: Object.keys(labels.metadata) };
  const save = async (edits) => {
    try {
      await correct(video, edits);
    } catch (error) {
      if (error.status !== 409 || !error.reply.edits) throw error;
      video.revision = error.reply.revision;   /* so that a second press overwrites */
      throw new Error(`${error.message}; or save again to keep yours`);
    }
    tell(`“${edits.find((each) => each.do === "title")?.title ?? video.title}” is saved`);
    await load();
  };
  const box = openDetails(video, choices, save, guarded(async () => {
    tell(`“${video.title}” is deleted, but the video itself is still there`);
    await load();
    (part("cards").querySelector(".edit") || part("filter")).focus();
  }));
  /* the card may be another by now */
  box.addEventListener("close", () => part("cards").querySelector(`[data-id="${video.id}"] .edit`)?.focus());
};
const onlyTag = (tag) => {
  showTags(tag);
  guarded(load)();
};
/* Add a tag to all videos on the page, or remove it from them: a correction a video, which its history can undo. */
const tagAll = async (tag, verb) => {
  const has = ({ tags }) => tags.some((each) => each.toLowerCase() === tag.toLowerCase());
  const videos = listed.filter((video) => has(video) === (verb === "untag"));
  let failed = "";
  for (const [at, video] of videos.entries()) {
    tell(`${at} of ${plural(videos.length, "video")}`);
    const failure = await correct(video, [{ do: verb, tag }]).then(() => "", ({ message }) => `“${video.title}”: ${message}`);
    failed ||= failure;
  }
  await load();
  tell(`“${tag}” ${verb === "tag" ? "added to" : "removed from"} ${plural(videos.length, "video")}`);
  if (failed) throw new Error(`Not all were changed. ${failed}`);
};
const showTags = (chosen) => {
  const names = new Set([...Object.keys(labels.tags), ...(chosen ? [chosen] : [])]);
  const options = [...names].map((tag) => make("option", { value: tag, textContent: labels.tags[tag] ? `${tag} (${labels.tags[tag]})` : tag }));
  const words = options.map(({ textContent }) => textContent).join("\n");
  if (part("tag").dataset.words !== words) part("tag").replaceChildren(make("option", { value: "", textContent: "any tag" }), ...options);
  part("tag").dataset.words = words;
  const same = [...names].find((tag) => tag.toLowerCase() === chosen.toLowerCase());
  part("tag").value = same ?? "";
  part("tag").hidden = !names.size;
};
let listed = [];   /* the videos on the page */
let handed = [];
const askShare = (ids) => {
  handed = ids;
  part("share-title").textContent = ids.length === 1 ? "Share a video" : `Share ${ids.length} videos`;
  part("share-form").textContent = ids.length === 1 ? "One page that opens in any browser: steps, pictures and words." : "One .zip: a page per video and an index, which open in any browser.";
  part("with-videos").checked = false;
  part("share-box").showModal();
};
const share = async () => {
  part("share-box").close();
  tell("creating the file");
  const name = await save("/api/share", { ids: handed, videos: part("with-videos").checked });
  tell(`${plural(handed.length, "video")} shared: ${name} is in this browser's downloads, and needs no server`);
};
let loads = 0, newest = null;
const load = () => (newest = loadCards());
const loadCards = async () => {
  const mine = loads += 1;
  const query = new URLSearchParams({ q: part("filter").value, state: part("state").value, sort: part("sort").value, tag: part("tag").value });
  const [{ videos }, used] = await Promise.all([ask(`/api/videos?${query}`), ask("/api/labels")]);
  if (mine !== loads) return newest;   /* what was asked for later counts, whichever answer comes first */
  labels = used;
  showTags(part("tag").value);
  const narrowed = part("filter").value || part("state").value || part("tag").value;
  const focused = document.activeElement.closest(".card"), words = document.activeElement.textContent;
  drawCards(videos.map(drawCard));
  if (focused && document.activeElement.closest(".card") !== focused) {   /* its tags, and so the number of its buttons, may be others now */
    const controls = [...part("cards").querySelectorAll(`[data-id="${focused.dataset.id}"] :is(a, button)`)];
    (controls.find(({ textContent }) => textContent === words) || controls[0])?.focus();
  }
  listed = videos;
  const these = listed.length === 1 ? "it" : `these ${listed.length}`;
  for (const [id, verb] of [["share", "Share"], ["tag-all", "Tag"]]) {
    part(id).hidden = !listed.length;
    part(id).textContent = `${verb} ${these}`;
  }
  document.body.classList.toggle("without-videos", !videos.length && !narrowed);
  part("facts").textContent = plural(videos.length, "video");
  part("empty").hidden = videos.length > 0;
  part("empty").textContent = narrowed ? "No video matches. Try fewer words, another tag or all states." : "No videos yet.";
  part("tour").hidden = Boolean(videos.length || narrowed);
};

/* ---- live runs ---- */

const loadLive = async () => {
  const { runs } = await ask("/api/live"), looks = JSON.stringify(runs);
  if (part("live").dataset.looks === looks) return;   /* a link made anew under the mouse takes no click */
  part("live").dataset.looks = looks;
  part("live").replaceChildren(...runs.map(({ name, finished, running }) => make("li", {},
    make("a", { href: `/live/${encodeURIComponent(name)}` }, make("bdi", { textContent: name })),
    make("p", { textContent: finished ? "ended" : running ? "live" : "interrupted" }))));
};

/* ---- search ---- */

const search = async () => {
  const query = part("wanted").value.trim();
  part("found").hidden = !query;
  history.replaceState(null, "", query ? `?q=${encodeURIComponent(query)}` : location.pathname);
  if (!query) return;
  const tag = part("tag").value;
  part("found-title").textContent = "Searching";   /* the first search of a large library takes a while */
  const { moments } = await ask(`/api/search?${new URLSearchParams({ q: query, most: 10, tag })}`).catch((error) => {
    part("found").hidden = true;
    throw error;
  });
  trouble(null);
  if (query !== part("wanted").value.trim()) return;
  const tagged = tag ? ` in videos tagged “${tag}”` : "";
  const videos = new Set(moments.map(({ id }) => id)).size;
  part("found-title").textContent = moments.length ? `${plural(moments.length, "moment")} of ${plural(videos, "video")}${tagged}` : `No moment like that was found${tagged}. Try other words for what is done.`;
  part("moments").replaceChildren(...moments.map((moment) => {
    const picture = moment.picture ? [loadPicture(make("img", { alt: "" }), moment.picture)] : [];
    const where = [moment.title || moment.video, moment.start === null ? "" : clock(moment.start), verdictWords(moment) || moment.kind];
    const frame = make("span", { className: "frame" }, ...picture), row = make("a", { className: "moment", href: moment.link });
    for (const kind of ["pointerenter", "focus"]) row.addEventListener(kind, () => preview(frame, moment));
    for (const kind of ["pointerleave", "blur"]) row.addEventListener(kind, () => frame.querySelector("video")?.remove());
    row.append(frame,
      make("span", {}, make("b", {}, make("bdi", { textContent: sentenceCase(moment.text) })), make("small", { textContent: where.filter(Boolean).join(" · ") })));
    return make("li", {}, row);
  }));
};
/* The moment's clip, without sound, while it is pointed at. */
const preview = (frame, { id, start, end }) => {
  if (start === null || frame.querySelector("video")) return;
  const clip = make("video", { muted: true, playsInline: true, tabIndex: -1, ariaHidden: "true", src: `/api/videos/${encodeURIComponent(id)}/media` });
  const again = () => { clip.currentTime = start; clip.play().catch(() => {}); };
  clip.addEventListener("loadedmetadata", again);
  clip.addEventListener("timeupdate", () => { if (clip.currentTime >= end) again(); });
  frame.append(clip);
};

/* ---- jobs ---- */

const jobs = new Map();
const jobRow = (id) => {
  const act = (name) => guarded(async () => { await ask(`/api/jobs/${id}/${name}`, { method: "POST", body: {} }); await loadJobs(); });
  const button = (textContent, name) => make("button", { type: "button", textContent, onclick: act(name) });
  const row = {
    name: make("bdi"), state: make("p"), bar: make("progress", { max: 1 }),
    cancel: button("Cancel", "cancel"), retry: button("Try again", "retry"),
    remove: make("button", { type: "button", textContent: "Remove", onclick: guarded(async () => {
      await ask(`/api/jobs/${id}`, { method: "DELETE" });
      row.node.remove();
      jobs.delete(id);
      const { source, options } = row.job;
      if (source && !options?.video && !source.includes("://")) tell(`removed from this list, but the file is still there: ${source}`);
    }) }),
  };
  row.node = make("li", {}, make("div", {}, row.name, row.state), make("div", { className: "bar" }, row.cancel, row.retry, row.remove), row.bar);
  jobs.set(id, row);
  return row;
};
const showJob = (job) => {
  const row = jobs.get(job.id) || jobRow(job.id);
  row.job = { ...row.job, ...job };
  const { source, state, stage, done, left_s: left, error, options } = row.job;
  row.name.textContent = (source || "").split(/[\\/]/).pop() || source || `job ${job.id}`;
  row.bar.ariaLabel = `Progress of ${row.name.textContent}`;
  const running = state === "running";
  const again = Boolean(options?.video), ended = ["failed", "cancelled"].includes(state);
  row.state.textContent = [again && "read again", STAGES[state] || state, running && stage, running && left !== undefined && left !== null && `${clock(left)} left`, error && browserCure(error.replace(`${source}: `, "")), again && ended && "the steps that it had are still there"].filter(Boolean).join(" · ");
  row.bar.hidden = !running;
  if (typeof done === "number") row.bar.value = done;
  else row.bar.removeAttribute("value");
  row.cancel.hidden = !["waiting", "running"].includes(state);
  row.retry.hidden = !ended;
  row.remove.hidden = row.retry.hidden;
  if (state === "done") {   /* its video is a card now */
    row.node.remove();
    jobs.delete(job.id);
    return tell(`${row.name.textContent} is done`);
  }
  const list = row.retry.hidden ? part("jobs") : part("failures");
  if (row.node.parentNode !== list) {
    if (state === "failed" && row.node.parentNode) tell(`${row.name.textContent} failed`);
    list.prepend(row.node);
  }
  for (const [name, verb] of [["cancel", "Cancel"], ["retry", "Try again"], ["remove", "Remove"]]) row[name].ariaLabel = `${verb}: ${row.name.textContent}`;
};
/* Those that were done before the page was opened are cards already. */
const loadJobs = async () => {
  const all = (await ask("/api/jobs")).jobs;
  all.filter(({ id, state }) => state !== "done" || jobs.has(id)).reverse().forEach(showJob);
};

/* ---- what comes in ---- */

let reading = { options: () => ({}) };   /* how what comes in is read */
part("reading").addEventListener("toggle", guarded(async () => {
  reading = await readingFields();
  part("reading-fields").replaceChildren(...reading.nodes);
}), { once: true });
const take = async (body) => {
  const { job } = await ask("/api/videos", { method: "POST", body: { ...body, options: reading.options() } });
  await loadJobs();
  return job;
};

/* A file in pieces. One that broke off is taken up where the studio has it: also when the page was closed between. */
const upload = async (file) => {
  const name = make("bdi", { textContent: file.name }), state = make("p"), bar = make("progress", { max: 1, value: 0, ariaLabel: `Upload of ${file.name}` });
  const cancel = make("button", { type: "button", textContent: "Cancel", ariaLabel: `Cancel the upload of ${file.name}` });
  const row = make("li", {}, make("div", {}, name, state), cancel, bar), key = `stepline-upload:${file.name}:${file.size}:${file.lastModified}`;
  let stopped = false;
  cancel.onclick = () => { stopped = true; row.remove(); };
  /* A file that is refused leaves "Running", and its reason stays until it is dismissed. */
  const refuse = (reason) => {
    state.textContent = browserCure(reason);
    bar.remove();
    cancel.textContent = "Dismiss";
    cancel.ariaLabel = `Dismiss ${file.name}`;
    cancel.onclick = () => row.remove();
    part("refused").prepend(row);
    tell(`${file.name} was not added`);
  };
  if (!file.size) return refuse("the file is empty; choose another");
  part("uploads").append(row);
  const upload = await begun(key, file).catch(({ message }) => refuse(message));
  if (!upload) return;
  let { id, offset } = upload;
  for (let tries = 0; !stopped;) {
    bar.value = file.size ? offset / file.size : 1;
    state.textContent = `${Math.floor(100 * bar.value)} % of ${(file.size / 1e6).toFixed(1)} MB`;
    try {
      const headers = { "Upload-Offset": String(offset), "Content-Type": "application/offset+octet-stream" };
      const reply = await ask(`/api/uploads/${id}`, { method: "PATCH", body: file.slice(offset, offset + PIECE), headers });
      offset = reply.offset;
      tries = 0;
      if (offset >= file.size) break;
    } catch (error) {
      /* What is there of it stays for the next try, also after a login that a new start of the studio asks for. */
      if (error instanceof RequestError && error.status < 500 && error.status !== 409) return refuse(error.message);
      state.textContent = error instanceof RequestError ? browserCure(error.message) : "the studio does not answer, trying again";
      await new Promise((wake) => setTimeout(wake, PATIENCE * Math.min(15, ++tries)));
      offset = await offsetOf(id).catch(() => offset);
    }
  }
  kept.remove(key);
  row.remove();
  if (stopped) {
    await ask(`/api/uploads/${id}`, { method: "DELETE", body: {} });
    return;
  }
  tell(`${file.name} is here`);
  await loadJobs();
};
const offsetOf = async (id) => {
  const reply = await fetch(`/api/uploads/${id}`, { method: "HEAD", headers: { "X-Stepline": "studio" } });
  if (!reply.ok) throw new RequestError(reply.status, {});
  return Number(reply.headers.get("Upload-Offset"));
};
const begun = async (key, file) => {
  const id = kept.get(key, null);
  if (id) {
    const offset = await offsetOf(id).catch(() => null);
    if (offset !== null) return { id, offset };
  }
  const reply = await ask("/api/uploads", { method: "POST", body: { name: file.name, size: file.size, options: reading.options() } });
  kept.set(key, reply.upload);
  return { id: reply.upload, offset: reply.offset };
};
addEventListener("beforeunload", (event) => { if (part("uploads").children.length) event.preventDefault(); });   /* else a click on a card ends them */
const uploadAll = async (files) => { for (const file of files) await upload(file).catch(trouble); };

let typing = 0;
const soon = (act) => () => { clearTimeout(typing); typing = setTimeout(guarded(act), TYPING); };
part("filter").addEventListener("input", soon(load));
let waiting = 0;
const loadSoon = () => { clearTimeout(waiting); waiting = setTimeout(guarded(load), TYPING); };   /* once for many changes */
/* A picture is refused until its video is compared with its record. The answer to one that was asked for before may still come. */
const retryPictures = () => {
  for (const image of part("cards").querySelectorAll("[data-loading]")) image.addEventListener("error", loadSoon, { once: true });
};
part("tag").addEventListener("change", guarded(search));
for (const id of ["state", "sort", "tag"]) part(id).addEventListener("change", guarded(load));
part("search").addEventListener("submit", (event) => { event.preventDefault(); guarded(search)(); });
part("wanted").addEventListener("input", soon(search));
part("link").addEventListener("submit", (event) => {
  event.preventDefault();
  const source = part("source").value.trim();
  if (!source) return;
  trouble(null);
  guarded(async () => {
    await take(/^[a-z]+:\/\//i.test(source) ? { link: source } : { path: source });
    part("source").value = "";
    tell("added");
  })();
});
part("files").addEventListener("change", ({ target }) => { uploadAll([...target.files]); target.value = ""; });
part("share").addEventListener("click", () => askShare(listed.map(({ id }) => id)));
part("tag-all").addEventListener("click", () => {
  part("tag-title").textContent = `Tag ${plural(listed.length, "video")}`;
  part("tags-in-use").replaceChildren(...Object.keys(labels.tags).map((value) => make("option", { value })));
  part("shared-tag").value = "";
  part("tag-box").showModal();
});
part("tag-not").addEventListener("click", () => part("tag-box").close());
part("tag-form").addEventListener("submit", ({ submitter }) => {
  const tag = part("shared-tag").value.trim();
  if (tag) guarded(tagAll)(tag, submitter?.value || "tag");
});
part("share-now").addEventListener("click", guarded(share));
part("share-not").addEventListener("click", () => part("share-box").close());
let inside = 0;
const over = (by) => { inside = Math.max(0, inside + by); document.body.classList.toggle("dropping", inside > 0); };
addEventListener("dragenter", () => over(1));
addEventListener("dragleave", () => over(-1));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  over(-inside);
  uploadAll([...event.dataTransfer.files]);
});
const loadAll = guarded(async () => {
  trouble(null);
  await load();
  await loadJobs();
  await loadLive();
});
listen({
  job: (job) => { if (jobs.has(job.id)) showJob(job); else guarded(loadJobs)(); if (job.state === "done") guarded(load)(); },
  video: loadSoon,
  files: () => { retryPictures(); loadSoon(); },
}, () => { retryPictures(); loadAll(); });
bindKeys([
  [["/"], "searches all videos", { "/": () => part("wanted").focus() }],
  [["f"], "filters by title, tag or metadata", { f: () => part("filter").focus() }],
  [["t"], "edits title, tags and metadata of the video that has the focus, or deletes it", {
    t: () => {
      const chosen = document.activeElement.closest(".card")?.querySelector(".edit");
      if (chosen) chosen.click();
      else tell("choose a video first with Tab");
    },
  }],
  [["u"], "chooses files to add", { u: () => part("files").click() }],
]);
part("wanted").value = new URLSearchParams(location.search).get("q") || "";
loadAll();
if (part("wanted").value) guarded(search)();

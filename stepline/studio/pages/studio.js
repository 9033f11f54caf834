/* What all pages of the studio share: requests, events, nodes, words for times, the sheet of keys. */

export const part = (id) => document.getElementById(id);

/* A node with properties (attributes where it has no such property) and children; text is never read as markup. */
export const make = (tag, properties = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
};

export const clock = (seconds) => {
  const whole = Math.floor(seconds), two = (value) => String(value).padStart(2, "0");
  const hour = Math.floor(whole / 3600), minute = Math.floor(whole / 60) % 60;
  return hour ? `${hour}:${two(minute)}:${two(whole % 60)}` : `${minute}:${two(whole % 60)}`;
};
export const tenths = (seconds) => `${clock(seconds)}.${Math.floor((seconds % 1) * 10 + 1e-6)}`;
export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
export const sentenceCase = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/* A message whose cure is a command or an option, with who can use it. */
export const browserCure = (message) => (/`stepline |pip install|--[a-z]/.test(message) ? `${message}. Whoever started this studio can do that.` : message);

/* The verdict on a step, as stepline/outputs/verdict.py has it: the class that colours it, and its words. */
export const look = ({ status, doubt }) => (doubt ? "doubtful" : status || "unjudged");
export const verdictWords = ({ status, doubt }) => (doubt ? "placed?" : (status || "").replace("_", " "));

/* An id that nobody else makes; randomUUID is not there on pages of other machines. */
export const newId = () => [...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/* The id in this page's address: /video/ID, /follow/ID. */
export const pageId = () => location.pathname.split("/").pop();

export class RequestError extends Error {
  constructor(status, reply) {
    /* without what a program alone needs */
    super(reply.error?.replace(/^body: |; \/api\/docs shows what it takes$/g, "") || `the studio answered ${status}`);
    this.status = status;
    this.reply = reply;
  }
}

/* The reply to a request of the API. Throws RequestError where it is refused, TypeError where nobody answers. */
export const ask = async (path, { method = "GET", body, headers = {} } = {}) => {
  const own = method === "GET" ? {} : { "X-Stepline": "studio" };
  const data = body === undefined || body instanceof Blob ? body : JSON.stringify(body);
  if (typeof data === "string") own["Content-Type"] = "application/json";
  const reply = await fetch(path, { method, body: data, headers: { ...own, ...headers } });
  const told = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new RequestError(reply.status, told);
  return told;
};

/* The reply to what is sent, saved as a file by the browser; its name is returned. */
export const save = async (path, body) => {
  const headers = { "X-Stepline": "studio", "Content-Type": "application/json" };
  const reply = await fetch(path, { method: "POST", body: JSON.stringify(body), headers });
  if (!reply.ok) throw new RequestError(reply.status, await reply.json().catch(() => ({})));
  const [, coded, plain] = /filename\*=utf-8''([^;]+)|filename="([^"]+)"/i.exec(reply.headers.get("Content-Disposition")) || [];
  const name = coded ? decodeURIComponent(coded) : plain || "steps";
  const link = make("a", { href: URL.createObjectURL(await reply.blob()), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  return name;
};

/* Pages of an upright video are set for one, and say why a video does not play. */
export const shapePage = (player) => {
  player.addEventListener("loadedmetadata", () => {
    document.body.classList.toggle("portrait", player.videoHeight > player.videoWidth);
  });
  player.addEventListener("error", async () => {
    const { media } = await ask(`/api/videos/${pageId()}`).catch(() => ({}));
    part("trouble").textContent = media
      ? "This browser cannot play the video's file. Open the page in another browser, or convert the video to mp4 (H.264) and add that. Its steps can be corrected anyway."
      : "The video's file cannot be read any more. Put it back where it was, then load the page again.";
    part("trouble").hidden = false;
  });
};

/* Server-sent events, by name. The browser connects again by itself. `opened` is called at each connection: what
   happened before it, also between the page's first requests and it, came as no event. */
export const listen = (handlers, opened) => {
  const source = new EventSource("/api/events");
  source.addEventListener("open", opened);
  for (const [name, take] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => take(JSON.parse(event.data)));
  }
};

export const tell = (text) => { part("told").textContent = text; };

export const copy = async (text, what) => {
  try {
    await navigator.clipboard.writeText(text);
    tell(`${what} copied`);
  } catch {
    tell(`the browser does not let this page copy: ${text}`);
  }
};

/* Pictures are made by the studio when they are asked for: two at a time, once they are near what is on screen, so that
   the video never waits for them. */
const AT_ONCE = 2, asked = [];
let loading = 0;
const loadNext = () => {
  while (loading < AT_ONCE && asked.length) {
    const image = asked.shift();
    if (!image.isConnected) continue;
    loading += 1;
    image.onload = image.onerror = ({ type }) => {
      loading -= 1;
      delete image.dataset.loading;
      if (type === "error") {   /* no picture rather than a broken one; it is asked for again when it is drawn again */
        image.removeAttribute("src");
        delete image.dataset.picture;
      }
      loadNext();
    };
    image.src = image.dataset.picture;
  }
};
const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    asked.push(target);
  }
  loadNext();
}, { rootMargin: "200px" });
export const loadPicture = (image, source) => {
  if (image.dataset.picture === source) return image;
  image.dataset.picture = source;
  image.dataset.loading = "";
  near.observe(image);
  return image;
};

/* What is kept in this browser between visits; one that keeps nothing is no reason to stop. */
export const kept = {
  get: (name, otherwise) => { try { return JSON.parse(localStorage.getItem(name)) ?? otherwise; } catch { return otherwise; } },
  set: (name, value) => { try { localStorage.setItem(name, JSON.stringify(value)); } catch { /* as said */ } },
  remove: (name) => { try { localStorage.removeItem(name); } catch { /* as said */ } },
  names: () => { try { return Object.keys(localStorage); } catch { return []; } },
};

/* Keys of a page: rows of [names on the sheet, what they do, {key: act}]. "?" shows the sheet. */
export const bindKeys = (rows) => {
  const sheet = make("dialog", { id: "keys" });
  sheet.setAttribute("aria-labelledby", "keys-title");
  const close = make("button", { type: "button", textContent: "Close", onclick: () => sheet.close() });
  const all = [...rows, [["?"], "shows these keys", { "?": () => sheet.showModal() }], [["Esc"], "closes them, leaves a field", {}]];
  const lines = all.map(([names, what]) => {
    const keys = make("th", { scope: "row" }, ...names.flatMap((name) => [make("kbd", { textContent: name }), " "]));
    return make("tr", {}, keys, make("td", { textContent: what }));
  });
  sheet.append(make("h2", { id: "keys-title", textContent: "Keys" }), make("table", {}, make("tbody", {}, ...lines)), close);
  document.body.append(sheet);
  part("help")?.addEventListener("click", () => sheet.showModal());
  const acts = Object.assign({}, ...all.map(([, , keys]) => keys));
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]") || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape" && !event.isComposing) event.target.blur();
      return;
    }
    /* A keyboard of other letters, such as Greek, has the keys where the Latin one has them. */
    const [, latin] = (event.key > "\u007f" && /^Key([A-Z])$/.exec(event.code)) || [];
    const key = latin ? latin[event.shiftKey ? "toString" : "toLowerCase"]() : event.key;
    const name = (event.ctrlKey || event.metaKey ? "Ctrl+" : "") + (key === "Z" && event.ctrlKey ? "Shift+z" : key);
    const act = acts[name];
    if (!act || ((event.key === " " || event.key === "Enter") && event.target.closest("button, a, summary, video"))) return;
    event.preventDefault();
    act();
  });
};

/* The speed of a player: a select, and "<" and ">". */
export const bindSpeed = (player, select) => {
  const speeds = [0.25, 0.5, 0.75, 1, 1.25, 1.5, 2];
  select.append(...speeds.map((speed) => make("option", { value: speed, textContent: `${speed}×`, selected: speed === 1 })));
  select.addEventListener("change", () => { player.playbackRate = Number(select.value); });
  player.addEventListener("ratechange", () => { select.value = String(player.playbackRate); });
  return (by) => {
    const next = speeds.indexOf(player.playbackRate) + by;
    player.playbackRate = speeds[Math.min(speeds.length - 1, Math.max(0, next))];
  };
};

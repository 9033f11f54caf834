/* Follow along: one step at a time in big letters, its clip again and again, timers for what its words say. */
import { ask, bindKeys, clock, kept, make, pageId, part, plural, sentenceCase, shapePage, tell, verdictWords } from "./studio.js";
import { isShown, secondsText } from "./durations.js";

const video = `/api/videos/${pageId()}`, player = part("player"), timers = new Map();
const LONGEST_TIMER = 86400;   // s
const MANY = 16, VERY_MANY = 36;   // steps from which the print is set smaller, so that one page holds it
shapePage(player);
let steps = [], sentences = [], times = {}, pictures = {}, current = 0, media = false, listening = null;

const place = (step) => (isShown(step) ? step : null);
/* The sentences of a step that is not shown, where they say more than its text. */
const letters = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
const wordsOf = (step) => {
  const words = place(step) ? "" : step.sources.map((source) => sentences[source]?.text).filter(Boolean).join(" ");
  return letters(words) === letters(step.text) ? "" : words;
};
/* What plays: where a step is shown, else where its words are. */
const clipOf = (step) => place(step) || (step.said && { start: step.said[0], end: Math.max(step.said[1], step.said[0] + 2) });

/* A rough guide: now, and what the step takes in the film and states of waiting. Said where it waits, or takes LONG. */
const LONG = 300;   // s
const clockAfter = (step) => {
  const shown = place(step), seconds = (shown ? shown.end - shown.start : 0) + (step.wait?.low ?? 0);
  if (!step.wait && seconds < LONG) return "";
  const time = new Date(Date.now() + 1000 * seconds).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return `, about ${time}${step.wait?.high === null ? " or later" : ""} (a rough guide)`;
};

const show = (index, play = true) => {
  current = Math.min(steps.length - 1, Math.max(0, index));
  const step = steps[current];
  if (!step) return;
  kept.set(`stepline-follow:${pageId()}`, step.id);
  const clip = clipOf(step), isLast = current === steps.length - 1, words = wordsOf(step);
  const where = place(step) ? ` · ${clock(step.start)}` : clip ? ` · ${verdictWords(step) || "said"}, ${clock(clip.start)}` : " · not found";
  part("where").textContent = `Step ${current + 1} of ${steps.length}${step.kind === "avoid" ? " · ⚠ Avoid" : ""}${where}`;
  part("text").textContent = sentenceCase(step.text);
  part("words").firstElementChild.textContent = `“${words}”`;
  part("words").hidden = !words;
  part("after").textContent = steps[current + 1] ? `Then${clockAfter(step)}: ${sentenceCase(steps[current + 1].text)}` : "This is the last step.";
  part("back").disabled = current === 0;
  part("next").textContent = isLast ? "Done" : "Next ›";
  document.querySelector(".clip").hidden = !media || !clip;
  if (media && clip) {
    player.currentTime = clip.start;
    if (play) player.play().catch(() => { /* the browser may want a press first */ });
  } else player.pause();
  showTimers();
};

/* Timers of this step, and those of others that run; of "8 to 10 minutes" the shorter, to look then. */
const showTimers = () => {
  for (const [seconds, longest] of times[steps[current].id] ?? []) {
    const text = secondsText(seconds, longest), key = `${steps[current].id}:${text}`;
    if (seconds <= LONGEST_TIMER && !timers.has(key)) timers.set(key, { key, seconds, text, step: current + 1, left: seconds, ends: null });
  }
  const own = `${steps[current].id}:`;
  part("timers").replaceChildren(...[...timers.values()].filter(({ key, ends, over }) => key.startsWith(own) || ends || over).map((timer) => {
    timer.button = make("button", { type: "button", onclick: () => press(timer) });
    label(timer);
    return timer.button;
  }));
};
const label = (timer) => {
  const left = timer.ends ? Math.max(0, (timer.ends - Date.now()) / 1000) : timer.left;
  const state = timer.over ? "over" : timer.ends ? "runs" : "";
  timer.button.className = state;
  timer.button.textContent = timer.over ? `${timer.text} over · stop` : `${timer.ends ? "⏸" : "▶"} ${clock(Math.ceil(left))}`;
  timer.button.ariaLabel = timer.over ? `Stop the timer of step ${timer.step}` : `${timer.ends ? "Pause" : "Start"} the timer of step ${timer.step}: ${timer.text}`;
};
const press = (timer) => {
  if (timer.over) Object.assign(timer, { over: false, left: timer.seconds });
  else if (timer.ends) Object.assign(timer, { left: Math.max(0, (timer.ends - Date.now()) / 1000), ends: null });
  else timer.ends = Date.now() + timer.left * 1000;
  label(timer);
};
const beep = () => {
  const audio = new AudioContext();
  [0, 0.4, 0.8].forEach((at) => {
    const tone = audio.createOscillator();
    tone.connect(audio.destination);
    tone.start(audio.currentTime + at);
    tone.stop(audio.currentTime + at + 0.2);
  });
  setTimeout(() => audio.close(), 2000);
};
setInterval(() => {
  for (const timer of timers.values()) {
    if (!timer.ends) continue;
    if (Date.now() >= timer.ends) {
      Object.assign(timer, { ends: null, over: true, left: 0 });
      tell(`step ${timer.step}: ${timer.text} over`);
      beep();
      showTimers();
    } else if (timer.button?.isConnected) label(timer);
  }
}, 250);

/* Voice: what the browser itself hears; off until it is asked for. */
const Recognition = globalThis.SpeechRecognition || globalThis.webkitSpeechRecognition;
const WORDS = [
  [/\b(next|on|continue|weiter)\b/, () => show(current + 1)], [/\b(back|previous|zurück)\b/, () => show(current - 1)],
  [/\b(again|repeat)\b/, () => show(current)], [/\b(pause|stop)\b/, () => player.pause()], [/\b(play)\b/, () => player.play().catch(() => {})],
  [/\b(timer|start)\b/, () => part("timers").querySelector("button:not(.runs)")?.click()],
];
const toggleVoice = () => {
  if (listening) {
    const old = listening;
    listening = null;
    old.stop();
  } else {
    listening = Object.assign(new Recognition(), { continuous: true, lang: document.documentElement.lang });
    listening.onresult = ({ results }) => {
      const heard = results[results.length - 1][0].transcript.toLowerCase();
      WORDS.find(([word]) => word.test(heard))?.[1]();
    };
    listening.onerror = ({ error }) => {
      if (error === "no-speech") return;
      listening = null;
      tell(`voice is off: ${error}`);
      part("voice").setAttribute("aria-pressed", "false");
    };
    listening.onend = () => listening?.start();   /* browsers end after a silence */
    listening.start();
    tell("say next, back, again, pause or timer");
  }
  part("voice").setAttribute("aria-pressed", String(Boolean(listening)));
};

const sheet = (card) => {
  const rows = steps.map((step, index) => {
    const shown = place(step), avoid = step.kind === "avoid" ? "⚠ Avoid: " : "";
    const words = make("span", {}, make("b", { textContent: `${index + 1}. ` }), `${avoid}${sentenceCase(step.text)}`, shown ? ` (${clock(step.start)})` : "");
    const second = shown && pictures[step.id];
    const image = media && shown ? make("img", { alt: "" }) : make("span");
    if (second) image.dataset.picture = `${video}/pictures/${second.toFixed(1)}.jpg`;
    return make("li", {}, image, words);
  });
  part("sheet").classList.toggle("many", steps.length > MANY && steps.length <= VERY_MANY);
  part("sheet").classList.toggle("very-many", steps.length > VERY_MANY);
  part("sheet").replaceChildren(make("h1", { textContent: card.title }), make("ol", {}, ...rows));
};

/* One after another, so that the clip never waits for them. */
const loadSheet = async () => {
  for (const image of part("sheet").querySelectorAll("img")) {
    image.src = image.dataset.picture;
    await image.decode().catch(() => {});   /* a second without a picture prints none */
  }
};
let sheetLoaded = null;

const begin = async () => {
  const [card, reply] = await Promise.all([ask(video), ask(`${video}/record`)]);
  steps = reply.record.steps;
  sentences = reply.record.transcript?.sentences || [];
  times = reply.step_times;
  pictures = reply.pictures;
  media = card.media;
  document.documentElement.lang = reply.record.transcript?.language || "en";
  part("title").textContent = card.title;
  document.title = card.title;
  part("review").href = `/video/${pageId()}`;
  sheet(card);
  if (!steps.length) {
    part("text").textContent = "No step was found in this video.";
    part("after").textContent = reply.record.warnings.at(-1) || "";   /* what helps */
    document.querySelector(".clip").hidden = document.querySelector("nav").hidden = true;
    return;
  }
  if (media) player.src = `${video}/media`;
  const at = /^#step-(\d+)$/.exec(location.hash), last = steps.findIndex(({ id }) => id === kept.get(`stepline-follow:${pageId()}`, null));
  show(at ? at[1] - 1 : Math.max(0, last), false);
  player.addEventListener("loadedmetadata", () => {
    show(current);
    sheetLoaded = loadSheet();
  }, { once: true });
  tell(plural(steps.length, "step"));
};

player.addEventListener("timeupdate", () => {
  const step = steps[current], clip = step && clipOf(step);
  if (clip && !player.seeking && (player.currentTime >= clip.end || player.currentTime < clip.start - 0.5)) player.currentTime = clip.start;
});
player.addEventListener("ended", () => show(current));
player.addEventListener("click", () => { if (player.paused) player.play().catch(() => {}); else player.pause(); });
const goOn = () => show(current + 1);
const finish = () => {
  kept.remove(`stepline-follow:${pageId()}`);   /* the next visit begins with the first step */
  location.assign("/");
};
const acts = {
  next: () => (current === steps.length - 1 ? finish() : goOn()), back: () => show(current - 1), voice: toggleVoice,
  print: async () => {
    await sheetLoaded;
    print();
  },
  sound: () => {
    player.muted = !player.muted;
    part("sound").setAttribute("aria-pressed", String(!player.muted));
  },
};
for (const [id, act] of Object.entries(acts)) part(id).addEventListener("click", act);
part("voice").hidden = !Recognition;
const pause = () => player.click();
bindKeys([
  [["→", "Space", "j"], "next step", { ArrowRight: goOn, " ": goOn, j: goOn, PageDown: goOn }],
  [["←", "k"], "the step before", { ArrowLeft: acts.back, k: acts.back, PageUp: acts.back }],
  [["p"], "plays and pauses the clip", { p: pause }],
  [["t"], "starts the step's timer", { t: () => part("timers").querySelector("button")?.click() }],
  [["s"], "sound", { s: acts.sound }],
  [["v"], "voice, where the browser hears", { v: () => Recognition && toggleVoice() }],
]);
begin().catch((error) => {
  part("trouble").textContent = error.message;
  part("trouble").hidden = false;
});

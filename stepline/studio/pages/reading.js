/* How a video is read: the language, recogniser and writer that a job is given. */
import { ask, make } from "./studio.js";

const NAMES = {
  "whisper-tiny.en": "Whisper tiny, English", "whisper-base": "Whisper base, 99 languages", whisperx: "WhisperX",
  extractive: "sentences of the speech", llm: "language model",
};
const LANGUAGES = { ba: "Bashkir", bo: "Tibetan" };   /* for which Chrome has no name */
const LABELS = { language: "Language", recogniser: "Recogniser", writer: "Writer" };

/* A select for each option that has a choice, and the options that are chosen. */
export const readingFields = async () => {
  const choices = await ask("/api/choices"), languages = new Intl.DisplayNames("en", { type: "language" });
  const named = {
    language: choices.languages.map((code) => [code, LANGUAGES[code] || languages.of(code)]).sort(([, a], [, b]) => a.localeCompare(b)),
    recogniser: choices.recognisers.map((name) => [name, NAMES[name] || name]),
    writer: choices.writers.map((name) => [name, NAMES[name] || name]),
  };
  const selects = Object.entries(named).map(([name, values]) => make("select", { name },
    make("option", { value: "", textContent: "default" }), ...values.map(([value, textContent]) => make("option", { value, textContent }))));
  const missing = "Whisper base, for 99 languages, is not installed. Whoever started this studio can add it with `stepline weights get whisper-base`.";
  const note = choices.recognisers.includes("whisper-base") ? [] : [make("p", { className: "lead", textContent: missing })];
  return {
    nodes: [...selects.map((select) => make("label", {}, LABELS[select.name], " ", select)), ...note],
    options: () => Object.fromEntries(selects.filter(({ value }) => value).map(({ name, value }) => [name, value])),
  };
};

/* Ask how a video is to be read again. begun: is given the job. */
export const askReading = async (video, begun) => {
  const { nodes, options } = await readingFields();
  const trouble = make("p", { className: "warnings", role: "alert", hidden: true });
  const box = make("dialog", { className: "details" },
    make("form", { method: "dialog" },
      make("h2", { id: "reading-title", textContent: "Read the video again" }),
      make("p", { textContent: "Its steps are found and written again. Title, tags and metadata stay." }), ...nodes, trouble,
      make("div", { className: "row ends" },
        make("button", { type: "button", textContent: "Cancel", onclick: () => box.close() }), make("button", { id: "read-now", textContent: "Read again" }))));
  box.setAttribute("aria-labelledby", "reading-title");
  box.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const { job } = await ask(`${video}/jobs`, { method: "POST", body: options() });
      box.close();
      begun(job);
    } catch ({ message }) {
      trouble.textContent = message;
      trouble.hidden = false;
    }
  });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
};

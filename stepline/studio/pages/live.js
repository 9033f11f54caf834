/* A live run: its steps as they are told, the one at hand marked, and what was said last. */
import { clock, look, make, pageId, part, plural, sentenceCase, verdictWords } from "./studio.js";

const name = decodeURIComponent(pageId());
part("title").textContent = name;
const steps = new Map();
let at = 0, ended = "", broken = "";

/* What is shown of a step: told, revised, being shown, ended with its verdict, taken back. */
const rowOf = (id) => {
  if (!steps.has(id)) {
    const step = { text: make("bdi"), badge: make("span", { className: "badge" }), when: make("small") };
    step.row = make("li", { id: `step-${id}` }, step.text, " ", step.badge, " ", step.when);
    part("steps").append(step.row);
    steps.set(id, step);
  }
  return steps.get(id);
};
const badge = (step, state, words = state) => {
  step.badge.textContent = words;
  step.badge.className = `badge ${state}`;
  step.badge.hidden = !state;
};
const mark = (id) => {
  for (const [other, { row }] of steps) {
    if (other === id) row.setAttribute("aria-current", "step");
    else row.removeAttribute("aria-current");
  }
  steps.get(id)?.row.scrollIntoView({ block: "nearest" });
};
const isAtHand = (id) => steps.get(id).row.hasAttribute("aria-current");

const take = {
  step_said: (event) => {
    const step = rowOf(event.step);
    step.text.textContent = sentenceCase(event.text);
    if (event.said) step.when.textContent = clock(event.said.start);
    if (!step.badge.textContent || event.said) badge(step, event.reason === "given" ? "" : "said_only", "said");
  },
  revised: (event) => {
    const step = rowOf(event.step);
    if (event.text) step.text.textContent = sentenceCase(event.text);
    else step.row.hidden = true;
  },
  step_shown: (event) => {
    const step = rowOf(event.step);
    badge(step, look(event), "now");
    step.when.textContent = clock(event.second);
    mark(event.step);
  },
  step_ended: (event) => {
    const step = rowOf(event.step);
    badge(step, event.status ? look(event) : "ended", verdictWords(event) || "ended");
    if (event.spans) step.when.textContent = event.spans.map(({ start, end }) => `${clock(start)} to ${clock(end)}`).join(", ");
    if (isAtHand(event.step)) step.row.removeAttribute("aria-current");
  },
  line: (event) => mark(event.step),
  next: (event) => mark(event.step),
  heard: ({ sentence }) => { part("heard").textContent = sentence.text; },
  gap: (event) => { broken = `${event.seconds.toFixed(1)} s are missing at ${clock(event.at)}`; },
  finished: (event) => { ended = `ended: ${event.reason || "the source ended"}`; },
};
const begin = () => {
  steps.clear();
  part("steps").replaceChildren();
  part("heard").textContent = ended = broken = "";
};
const tellFacts = () => {
  part("facts").textContent = [`${clock(at)}`, plural([...steps.values()].filter(({ row }) => !row.hidden).length, "step"), broken, ended].filter(Boolean).join(" · ");
};

const source = new EventSource(`/api/live/${encodeURIComponent(name)}/events`);
source.addEventListener("open", () => { begin(); part("trouble").hidden = true; });
source.addEventListener("anew", begin);
source.addEventListener("error", () => {
  part("trouble").textContent = source.readyState === EventSource.CLOSED ? "There is no such live run." : "The studio does not answer. Trying again.";
  part("trouble").hidden = false;
});
source.addEventListener("message", ({ data }) => {
  const event = JSON.parse(data);
  at = event.at;
  take[event.event]?.(event);
  tellFacts();
});

"use strict";

const part = (id) => document.getElementById(id);
const ENDS = {
  "done": "That was all. Thank you! You can close this page.",
  "not qualified": "Thank you. Too few of the first answers were as expected, so there is nothing more to do.",
};
let annotator = "";
let clip = "";

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "X-Stepline": "annotate" }, body: JSON.stringify(body) };
  const reply = await fetch(path, options || {});
  const told = await reply.json();
  if (!reply.ok) throw new Error(told.error);
  return told;
}

function trouble(error) {
  part("trouble").textContent = error ? error.message : "";
  part("trouble").hidden = !error;
}

async function next() {
  const task = await ask(`next?annotator=${encodeURIComponent(annotator)}`);
  const over = !task.clip;
  part("work").hidden = over;
  part("end").hidden = !over;
  if (over) {
    part("end").textContent = ENDS[task.stage];
    return;
  }
  clip = task.clip;
  part("stage").textContent = task.stage === "qualify"
    ? `A few questions to begin with: ${task.left + 1} to go.` : `${task.left + 1} clips to go.`;
  part("text").textContent = task.text;
  part("answer").reset();
  part("questions").disabled = true;
  part("wait").textContent = "Watch the clip to its end, then answer.";
  part("clip").src = task.media;
  await play();
}

async function play() {
  await ask("begin", { annotator, clip });
  try {
    await part("clip").play();
  } catch {
    part("wait").textContent = "Press “Watch again” to start the clip.";
  }
}

function guarded(act) {
  return (event) => {
    if (event) event.preventDefault();
    trouble(null);
    act().catch(trouble);
  };
}

part("who").addEventListener("submit", guarded(async () => {
  annotator = part("name").value.trim();
  await next();
  part("who").hidden = true;
}));
part("again").addEventListener("click", guarded(async () => {
  part("clip").currentTime = 0;
  await play();
}));
part("clip").addEventListener("ended", () => {
  part("questions").disabled = false;
  part("wait").textContent = "You have seen the whole clip. Now answer.";
});
part("clip").addEventListener("error", () => trouble(new Error("This clip cannot be played. Report it to the person who asked you.")));
part("answer").addEventListener("submit", guarded(async () => {
  const form = new FormData(part("answer"));
  const reason = part("reason").value.trim();
  const answer = form.get("shown") === "yes" ? "aligned" : "not shown";
  await ask("answer", { item: clip, annotator, answer, confidence: form.get("confidence"), reason });
  await next();
  part("undo").hidden = false;
}));
part("undo").addEventListener("click", guarded(async () => {
  await ask("undo", { annotator });
  part("undo").hidden = true;
  await next();
}));

const KEYS = {
  "y": "input[value=yes]", "n": "input[value=no]", "1": "input[value=very]", "2": "input[value=somewhat]",
  "3": "input[value=not]", "Enter": "#questions button", "w": "#again", "u": "#undo",
};
document.addEventListener("keydown", (event) => {
  const own = event.target.matches("input:not([type=radio]), button");
  const target = document.querySelector(KEYS[event.key] || KEYS[event.key.toLowerCase()] || "#none");
  if (own || event.ctrlKey || event.metaKey || event.altKey || !target || target.closest("[hidden]")) return;
  event.preventDefault();
  target.click();
});

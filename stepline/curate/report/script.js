"use strict";

const part = (id) => document.getElementById(id);
const told = JSON.parse(part("asked").textContent);
const said = new Map();   // id of a text -> what this person says
let annotator = "";
let place = 0;

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "X-Stepline": "audit" }, body: JSON.stringify(body) };
  const reply = await fetch(path, options || {});
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.error);
  return answer;
}

async function earlier() {
  return (await ask(`verdicts?annotator=${encodeURIComponent(annotator)}`)).said;
}

async function keep(id, word) {
  await ask("verdict", { item: id, annotator, answer: word });
  said.set(id, word);
}

function trouble(error) {
  part("trouble").textContent = error ? error.message : "";
  part("trouble").hidden = !error;
}

function clock(second) {
  const rest = (second % 60).toFixed(1);
  return `${Math.floor(second / 60)}:${rest.padStart(4, "0")}`;
}

function strip(holder, video, times, span) {
  holder.replaceChildren();
  for (const second of times) {
    const source = told.videos[video].frames[String(second)];
    if (!source) continue;
    const figure = document.createElement("figure");
    const image = document.createElement("img");
    const caption = document.createElement("figcaption");
    image.src = source;
    image.alt = `at ${clock(second)}`;
    caption.textContent = clock(second);
    if (span && second >= span[0] - 0.5 && second < span[1] + 0.25) figure.className = "inside";
    figure.append(image, caption);
    holder.append(figure);
  }
  if (!holder.children.length && span) holder.textContent = "There are no frames of this video in the page.";
}

function show() {
  const left = told.asked.filter((one) => !said.has(one.id)).length;
  const over = place >= told.asked.length;
  part("work").hidden = over;
  part("end").hidden = !over;
  if (over) {
    part("end").textContent = left ? `${left} texts have no verdict yet. Go back with Begin.` : "That was all. Thank you!";
    part("who").hidden = !left;
    return;
  }
  const one = told.asked[place];
  part("progress").textContent = `${place + 1} of ${told.asked.length}, ${left} without a verdict`;
  part("title").textContent = told.videos[one.video].title;
  part("text").textContent = one.text;
  part("span").textContent = `said to be shown from ${clock(one.start)} to ${clock(one.end)} (framed)`;
  strip(part("overview"), one.video, told.videos[one.video].overview, null);
  strip(part("frames"), one.video, one.times, [one.start, one.end]);
  for (const button of document.querySelectorAll("[data-said]")) {
    button.setAttribute("aria-pressed", String(said.get(one.id) === button.dataset.said));
  }
}

function next() {
  const open = told.asked.findIndex((one, number) => number > place && !said.has(one.id));
  const first = told.asked.findIndex((one) => !said.has(one.id));
  place = open >= 0 ? open : first >= 0 ? first : told.asked.length;
  show();
}

function guarded(act) {
  return (event) => {
    if (event) event.preventDefault();
    trouble(null);
    act().catch(trouble);
  };
}

let saving = false;   // one verdict at a time: a key held down gives no other text its answer

async function give(word) {
  if (saving || !annotator || place >= told.asked.length) return;
  saving = true;
  try {
    await keep(told.asked[place].id, word);
  } finally {
    saving = false;
  }
  next();
}

part("who").addEventListener("submit", guarded(async () => {
  annotator = part("name").value.trim();
  said.clear();
  for (const [id, word] of Object.entries(await earlier())) said.set(id, word);
  place = -1;
  next();
  part("who").hidden = place < told.asked.length;
  if (place < told.asked.length) part("text").focus();
}));
for (const button of document.querySelectorAll("[data-said]")) {
  button.addEventListener("click", guarded(() => give(button.dataset.said)));
}
part("back").addEventListener("click", () => {
  place = Math.max(0, place - 1);
  show();
});
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT" || part("work").hidden) return;
  const button = document.querySelectorAll("[data-said]")[Number(event.key) - 1];
  if (button) button.click();
});
// A served page cannot lead to files.
for (const link of document.querySelectorAll("#examples a:not([href^=http])")) link.removeAttribute("href");

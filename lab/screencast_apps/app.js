// What all the apps share: the theme of the address, and what a click does by its data attributes:
// show, hide, press (one of its group), toast, text ("id=new words").
const options = new URLSearchParams(location.search);
document.documentElement.dataset.theme = options.get("theme") || "light";
const part = (id) => document.getElementById(id);

function toast(words) {
  const box = document.createElement("div");
  box.className = "toast";
  box.textContent = words;
  document.body.append(box);
  setTimeout(() => box.remove(), 2500);
}

document.addEventListener("click", ({target}) => {
  const node = target.closest("[data-show], [data-hide], [data-press], [data-toast], [data-text]");
  if (!node) return;
  const {show, hide, press, toast: words, text} = node.dataset;
  for (const id of (hide || "").split(" ").filter(Boolean)) part(id).hidden = true;
  for (const id of (show || "").split(" ").filter(Boolean)) part(id).hidden = false;
  if (press !== undefined) {
    if (press) for (const other of document.querySelectorAll(`[data-press="${press}"]`)) other.ariaPressed = "false";
    node.ariaPressed = press ? "true" : String(node.ariaPressed !== "true");
  }
  for (const change of (text || "").split("|").filter(Boolean)) {
    const [id, value] = change.split("=");
    part(id).textContent = value;
  }
  if (words) toast(words);
});

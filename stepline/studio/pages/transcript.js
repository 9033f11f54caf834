/* The transcript of a video under review: its sentences are heard, mended, joined, dropped, and made into steps. */
import { clock, make, part, plural, tenths } from "./studio.js";

const HELD = 5000;   // ms after a person scrolled in which the list does not follow the video
const LONGEST = 2000;   // letters, as the studio takes it
const DRAFT = `stepline-draft:${location.pathname}`;

/* What is typed and not saved yet is this window's own, and outlives a reload. */
const draft = {
  get: () => { try { return JSON.parse(sessionStorage.getItem(DRAFT)); } catch { return null; } },
  set: (value) => { try { sessionStorage.setItem(DRAFT, JSON.stringify(value)); } catch { /* a browser that keeps nothing */ } },
  remove: () => { try { sessionStorage.removeItem(DRAFT); } catch { /* as said */ } },
};
const tokens = (text) => text.split(/\s+/).filter(Boolean);
const inOneLine = (text) => tokens(text).join(" ");

/* take(edits, base), seek(second), play(second), addStep(fields, start), chooseStep(id), revision(), isMade(sentence): what the page
   does and knows. */
export class Transcript {
  constructor(acts) {
    Object.assign(this, acts);
    this.list = part("sentences");
    this.rows = new Map();
    this.sentences = [];
    this.held = 0;
    const button = (textContent, act, more = {}) => make("button", { type: "button", textContent, onclick: act, ...more });
    this.tools = make("div", { className: "controls tools", role: "group", ariaLabel: "Sentence" },
      button("Edit", () => this.open()), this.making = button("Make a step", () => this.makeStep()),
      button("Join with next", () => this.join()), button("Drop", () => this.drop(), { className: "danger" }));
    this.list.addEventListener("click", (event) => this.click(event));
    this.list.addEventListener("dblclick", (event) => {
      const word = event.target.closest(".word");
      if (word) this.open([...word.parentNode.children].indexOf(word));
    });
    this.list.addEventListener("pointerover", ({ target }) => { if (target.className === "word") target.title = tenths(this.secondOf(target)); });
    this.list.addEventListener("keydown", (event) => this.press(event));
    this.list.addEventListener("focusin", ({ target }) => { if (target.className === "when") this.choose(this.idOf(target)); });
    for (const kind of ["wheel", "touchmove", "pointerdown"]) this.list.addEventListener(kind, () => { this.held = Date.now(); }, { passive: true });
  }

  tell(text) { part("told-words").textContent = text; }
  idOf(node) { return Number(node.closest("li").dataset.id); }
  at(id) { return this.sentences.findIndex((each) => each.id === id); }

  /* sentences: as the corrections have them. steps: sentence id -> [step id, its number] of the steps that rest on it. */
  update(sentences, steps) {
    const looks = JSON.stringify([...steps]);
    if (sentences === this.sentences && looks === this.looks) return;
    this.sentences = sentences;
    this.looks = looks;
    const ids = new Set(sentences.map(({ id }) => id));
    for (const [id, row] of this.rows) {
      if (ids.has(id)) continue;
      row.node.remove();
      this.rows.delete(id);
    }
    let place = this.list.firstElementChild;
    for (const each of sentences) {
      const row = this.rows.get(each.id) || this.makeRow(each.id);
      this.draw(row, each, steps.get(each.id) || []);
      if (row.node === place) place = place.nextElementSibling;
      else this.list.insertBefore(row.node, place);
    }
    part("sentence-count").textContent = plural(sentences.length, "sentence");
    part("no-sentences").hidden = sentences.length > 0;
    this.list.hidden = !sentences.length;
    if (!ids.has(this.current)) this.current = undefined;
    const first = this.rows.get(this.current ?? sentences[0]?.id);
    if (first) first.when.tabIndex = 0;
    this.making.disabled = this.isMade(this.current);
  }

  makeRow(id) {
    const row = {
      when: make("button", { type: "button", className: "when", tabIndex: -1 }),
      words: make("p", { className: "words" }),
      steps: make("span", { className: "cited" }),
    };
    row.node = make("li", {}, row.when, make("div", {}, row.words, row.steps));
    row.node.dataset.id = id;
    this.rows.set(id, row);
    return row;
  }

  draw(row, each, steps) {
    const before = row.sentence;
    row.sentence = each;
    if (before?.text !== each.text || before.start !== each.start) {
      row.when.textContent = clock(each.start);
      row.when.ariaLabel = `${clock(each.start)} ${each.text}`;
      row.words.replaceChildren(...tokens(each.text).flatMap((textContent) => [make("span", { className: "word", textContent }), " "]));
    }
    const looks = JSON.stringify(steps);
    if (row.looks === looks) return;
    row.looks = looks;
    row.steps.replaceChildren(...steps.map(([id, number]) => make("button", { type: "button", className: "number", textContent: number, ariaLabel: `Go to step ${number}`, onclick: () => this.chooseStep(id) })));
  }

  /* When a word is said: as it was heard, else by its share of the letters. */
  secondOf(word) {
    const { sentence } = this.rows.get(this.idOf(word)), all = [...word.parentNode.children], at = all.indexOf(word);
    const heard = sentence.words.length === all.length && sentence.words[at].start;
    if (typeof heard === "number") return heard;
    const before = all.slice(0, at).reduce((sum, each) => sum + each.textContent.length + 1, 0);
    return sentence.start + (before / (sentence.text.length + 1)) * (sentence.end - sentence.start);
  }

  click({ target }) {
    if (!target.closest("li") || target.closest(".tools, textarea, .number")) return;
    const id = this.idOf(target);
    this.choose(id);
    if (target.className === "when") this.play(this.rows.get(id).sentence.start);
    else if (target.className === "word") this.seek(this.secondOf(target));
  }

  choose(id) {
    if (this.current === id && this.tools.isConnected) return;
    const before = this.rows.get(this.current), row = this.rows.get(id);
    for (const each of this.rows.values()) if (each !== row && each.when.tabIndex === 0) each.when.tabIndex = -1;
    before?.node.classList.remove("chosen");
    this.current = id;
    row.when.tabIndex = 0;
    row.node.classList.add("chosen");
    row.node.lastElementChild.append(this.tools);
    this.making.disabled = this.isMade(id);
  }

  focus(id = this.current ?? this.spoken ?? this.sentences[0]?.id) {
    const row = this.rows.get(id);
    if (!row) return;
    this.choose(id);
    row.when.focus({ preventScroll: true });
    this.reveal(row);
  }

  walk(by) {
    const next = this.sentences[Math.min(this.sentences.length - 1, Math.max(0, this.at(this.current) + by))];
    if (next) this.focus(next.id);
  }

  /* The list scrolls, and never the page. */
  reveal({ node }) {
    const { list } = this, low = node.offsetTop + node.offsetHeight;
    if (node.offsetTop < list.scrollTop || low > list.scrollTop + list.clientHeight) list.scrollTop = node.offsetTop - list.clientHeight / 3;
  }

  press(event) {
    if (event.target.className !== "when" || event.ctrlKey || event.altKey || event.metaKey) return;
    const acts = {
      ArrowUp: () => this.walk(-1), ArrowDown: () => this.walk(1), Enter: () => this.open(),
      s: () => this.makeStep(), j: () => this.join(), Delete: () => this.drop(),
    };
    const act = acts[event.key] || acts[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /* ---- what a person does; each is one correction ---- */

  /* Edit the chosen sentence, with a word of it selected (not its punctuation), or the caret at its end. */
  open(word, text) {
    const row = this.rows.get(this.current);
    if (!row || row.field) return;
    const { sentence } = row, base = this.revision();
    const field = row.field = make("textarea", { className: "text", rows: 1, maxLength: LONGEST, spellcheck: true, ariaLabel: `Words at ${clock(sentence.start)}`, value: text ?? sentence.text });
    row.words.hidden = true;
    row.words.after(field);
    this.fit(field);
    const all = tokens(sentence.text), before = word === undefined ? field.value.length : all.slice(0, word).join(" ").length + Math.sign(word);
    const [lead, inner] = /^([^\p{L}\p{N}]*)(.*?)[^\p{L}\p{N}]*$/u.exec(all[word] ?? "").slice(1).map((each) => each.length);
    field.focus({ preventScroll: true });
    field.setSelectionRange(before + lead, before + lead + inner);
    this.reveal(row);
    const close = (saves) => {
      if (row.field !== field) return;
      row.field = null;
      draft.remove();
      const typed = inOneLine(field.value), inside = document.activeElement === field;
      field.remove();
      row.words.hidden = false;
      if (inside && row.node.isConnected) row.when.focus({ preventScroll: true });
      if (!saves || typed === inOneLine(sentence.text)) return;
      if (typed) this.take([{ do: "words", sentence: sentence.id, text: typed }], base);
      else this.tell("a sentence keeps a word; Drop removes it");
    };
    field.addEventListener("input", () => { this.fit(field); draft.set({ id: sentence.id, text: field.value }); });
    field.addEventListener("blur", () => { if (document.hasFocus()) close(true); });
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();   /* its letters are no keys of the page */
      if (event.key !== "Escape" && (event.key !== "Enter" || event.isComposing)) return;
      event.preventDefault();
      close(event.key === "Enter");
    });
  }

  fit(field) {
    if (CSS.supports("field-sizing", "content")) return;
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight}px`;
  }

  /* What was typed before the page was loaded again. */
  reopen() {
    const left = draft.get();
    if (!left || !this.rows.has(left.id)) return draft.remove();
    this.choose(left.id);
    this.open(undefined, left.text);
    this.tell("what you typed before is here again; Enter saves it");
  }

  makeStep() {
    const sentence = this.sentences[this.at(this.current)];
    if (!sentence) return;
    const { start, id } = sentence;
    if (this.isMade(id)) return this.tell("it is a step already");
    this.addStep({ sentence: id }, start);
    this.tell("made into a step");
    this.focus(id);   /* the button that had it is off now */
  }

  join() {
    const next = this.sentences[this.at(this.current) + 1];
    if (this.current === undefined || !next) return this.tell("there is no next sentence");
    this.take([{ do: "join", sentences: [this.current, next.id].sort((a, b) => a - b) }]);
    this.tell("joined with the next sentence");
    this.focus();
  }

  drop() {
    const at = this.at(this.current), next = this.sentences[at + 1] || this.sentences[at - 1];
    if (at < 0) return;
    this.take([{ do: "drop", sentence: this.current }]);
    this.tell("sentence dropped, undo brings it back");
    if (next) this.focus(next.id);
  }

  /* Where the video is: the last sentence that has begun, unless it has ended. */
  show(second, plays) {
    let low = 0, high = this.sentences.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.sentences[middle].start <= second) low = middle + 1;
      else high = middle;
    }
    const last = this.sentences[low - 1], id = last && second < last.end ? last.id : undefined;
    if (id === this.spoken) return;
    this.rows.get(this.spoken)?.node.classList.remove("spoken");
    this.spoken = id;
    const row = this.rows.get(id);
    if (!row) return;
    row.node.classList.add("spoken");
    const typing = this.list.contains(document.activeElement) && document.activeElement.matches("textarea");
    if (plays && !typing && Date.now() > this.held + HELD) this.reveal(row);
  }
}

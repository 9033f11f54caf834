/* The timeline of a video under review: pictures, loudness, what is said, and its steps as bars that can be moved; those
   that are only said as dashed ones, where they are said. */
import { clock, loadPicture, make, tenths } from "./studio.js";

const STRIDES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];   // s between two ticks
const SHORTEST = 0.2;     // s that a step may be stretched down to
const LANE = 34;          // px
const BAR = 10;           // px, the least width of a bar
const CLOCK = 48;         // px
const MOST_LANES = 6;
const SETTLED = 500;      // ms after the last key before a move is taken
const MOST_ZOOM = 64;

const round = (second) => Math.round(second * 100) / 100;

/* The lowest lane in which each bar overlaps none before it, where all are taken the one that ends first; a Map of step id
   to lane. */
const inLanes = (steps) => {
  const ends = [], lanes = new Map();
  for (const { id, place } of [...steps].sort((a, b) => a.place.start - b.place.start)) {
    const free = ends.findIndex((end) => end <= place.start);
    const next = ends.length < MOST_LANES ? ends.length : ends.indexOf(Math.min(...ends));
    const lane = free < 0 ? next : free;
    ends[lane] = Math.max(place.end, ends[lane] ?? 0);
    lanes.set(id, lane);
  }
  return lanes;
};

/* root: the figure it is drawn in. total: seconds. peaks: loudness, null until it is known, empty without sound.
   moved(id, span), chosen(id), seek(second): what the person did. */
export class Timeline {
  constructor(root, { video, total, peaks, moved, chosen, seek }) {
    Object.assign(this, { root, video, total, peaks, moved, chosen, seek });
    this.zoom = 1;
    this.bars = new Map();
    this.pictures = make("div", { className: "strip" });
    this.wave = make("canvas", { className: "wave", height: 40 });
    this.wave.setAttribute("aria-hidden", "true");
    this.said = make("div", { className: "said-row" });
    this.lanes = make("div", { className: "lanes", role: "group", ariaLabel: "Steps on the timeline" });
    this.ruler = make("div", { className: "ruler" });
    for (const row of [this.pictures, this.said, this.ruler]) row.setAttribute("aria-hidden", "true");
    this.cursor = make("div", { className: "cursor-line" });
    this.track = make("div", { className: "track" }, this.pictures, this.wave, this.said, this.lanes, this.ruler, this.cursor);
    this.scroll = make("div", { className: "scroll" }, this.track);
    root.prepend(this.scroll);
    this.track.addEventListener("pointerdown", (event) => this.scrub(event));
    this.scroll.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.setZoom(event.deltaY < 0 ? 2 : 0.5);
    }, { passive: false });
    new ResizeObserver(() => this.draw()).observe(this.track);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.drawWave());
  }

  percent(seconds) { return `${(100 * seconds) / this.total}%`; }

  second(event) {
    const box = this.track.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * this.total;
  }

  setZoom(by) {
    const middle = (this.scroll.scrollLeft + this.scroll.clientWidth / 2) / this.track.clientWidth;
    this.zoom = Math.min(MOST_ZOOM, Math.max(1, this.zoom * by));
    this.track.style.width = `${100 * this.zoom}%`;
    this.scroll.scrollLeft = middle * this.track.clientWidth - this.scroll.clientWidth / 2;
  }

  setSentences(sentences) {
    if (sentences === this.sentences) return;
    this.sentences = sentences;
    this.said.replaceChildren(...sentences.map((sentence) => {
      const mark = make("i", { title: sentence.text });
      mark.style.left = this.percent(sentence.start);
      mark.style.width = this.percent(sentence.end - sentence.start);
      return mark;
    }));
  }

  /* Pictures, waveform and ticks for the width that there is. */
  draw() {
    const width = this.track.clientWidth;
    if (!width || width === this.width) return;
    this.width = width;
    const count = Math.max(3, Math.min(60, Math.round(width / 96)));
    this.pictures.replaceChildren(...(this.video ? Array.from({ length: count }, (_, index) => loadPicture(
      make("img", { alt: "", draggable: false }), `${this.video}/pictures/${(((index + 0.5) * this.total) / count).toFixed(1)}.jpg`,
    )) : []));
    const stride = STRIDES.find((seconds) => (this.total / seconds) * 64 <= width) ?? Math.ceil((this.total * 64) / width);
    const ticks = [];
    // a clock has room before the end
    for (let second = 0; second <= this.total * (1 - CLOCK / width); second += stride) {
      const tick = make("span", { textContent: clock(second) });
      tick.style.left = this.percent(second);
      ticks.push(tick);
    }
    this.ruler.replaceChildren(...ticks);
    this.drawWave();
  }

  /* Its room is there before it is known, so that no bar moves from under a finger. */
  drawWave() {
    this.wave.hidden = this.peaks?.length === 0;
    if (!this.peaks) return;
    const width = this.wave.width = Math.min(8000, this.track.clientWidth), { height } = this.wave;
    const pen = this.wave.getContext("2d"), loudest = Math.max(1, ...this.peaks);
    pen.fillStyle = getComputedStyle(this.root).getPropertyValue("--muted");
    for (let x = 0; x < width; x += 2) {
      const from = Math.floor((x / width) * this.peaks.length), to = Math.max(from + 1, Math.floor(((x + 2) / width) * this.peaks.length));
      const tall = Math.max(1, (Math.max(...this.peaks.slice(from, to)) / loudest) * height);
      pen.fillRect(x, (height - tall) / 2, 1.4, tall);
    }
  }

  /* Where the video is; what plays stays in sight. */
  show(second, plays) {
    this.cursor.style.left = this.percent(Math.min(second, this.total));
    if (plays && !this.dragged) this.scrollTo(second, second);
  }

  reveal(id) {
    const place = this.bars.get(id)?.step.place;
    if (place) this.scrollTo(place.start, place.end);
  }

  scrollTo(start, end) {
    const perSecond = this.track.clientWidth / this.total, { scrollLeft, clientWidth } = this.scroll;
    if (end * perSecond < scrollLeft || start * perSecond > scrollLeft + clientWidth) this.scroll.scrollLeft = start * perSecond - 0.1 * clientWidth;
  }

  /* steps: as a record has them, with `number`, `look`, `title` and `place`, where the bar is, null for none; dashed: it is
     only said there. machine: what was said before, by id. */
  update(steps, machine, current) {
    const there = steps.filter((step) => step.place);
    const lanes = inLanes(there);
    this.lanes.style.height = `${LANE * (Math.max(0, ...lanes.values()) + 1)}px`;
    for (const [id, bar] of this.bars) {
      if (lanes.has(id)) continue;
      bar.node.remove();
      bar.ghost.remove();
      this.bars.delete(id);
    }
    for (const step of there) {
      const bar = this.bars.get(step.id) || this.makeBar(step.id);
      bar.step = step;
      const looks = JSON.stringify([step, lanes.get(step.id), machine[step.id]?.span, step.id === current]);
      if (bar.looks === looks) continue;
      bar.looks = looks;
      if (![this.dragged, this.nudged].includes(step.id)) this.place(bar, step.place);
      bar.node.className = `bar-box ${step.look}${step.dashed ? " dashed" : ""}${step.kind === "avoid" ? " avoid" : ""}${step.id === current ? " chosen" : ""}`;
      bar.node.style.top = bar.ghost.style.top = `${LANE * lanes.get(step.id)}px`;
      bar.body.firstChild.textContent = step.number;
      bar.body.lastChild.textContent = ` ${step.title}`;
      bar.body.ariaLabel = `Step ${step.number}: ${step.title}${step.dashed ? " (said only)" : ""}`;
      bar.start.ariaLabel = `Start of step ${step.number}`;
      bar.end.ariaLabel = `End of step ${step.number}`;
      for (const thumb of [bar.start, bar.end]) thumb.tabIndex = step.id === current ? 0 : -1;
      const was = machine[step.id]?.span;
      bar.ghost.hidden = !was;
      if (was) {
        bar.ghost.style.left = this.percent(was.start);
        bar.ghost.style.width = this.percent(was.end - was.start);
      }
    }
  }

  place(bar, { start, end }) {
    bar.now = { start, end };
    bar.node.style.left = `min(${this.percent(start)}, 100% - ${BAR}px)`;
    bar.node.style.width = this.percent(end - start);
    const words = { body: `${tenths(start)} to ${tenths(end)}`, start: tenths(start), end: tenths(end) };
    for (const [name, value, least, most] of [
      ["body", start, 0, this.total], ["start", start, 0, end], ["end", end, start, this.total],
    ]) {
      Object.assign(bar[name], { ariaValueNow: round(value), ariaValueMin: round(least), ariaValueMax: round(most), ariaValueText: words[name] });
    }
  }

  makeBar(id) {
    const slider = (name) => make("div", { className: `bar-${name}`, role: "slider", tabIndex: name === "body" ? 0 : -1 });
    const bar = { body: slider("body"), start: slider("start"), end: slider("end"), ghost: make("div", { className: "ghost", hidden: true }) };
    bar.body.append(make("b"), make("span"));
    bar.ghost.setAttribute("aria-hidden", "true");
    bar.node = make("div", {}, bar.body, bar.start, bar.end);
    bar.node.dataset.id = id;
    this.bars.set(id, bar);
    this.lanes.append(bar.ghost, bar.node);
    for (const name of ["body", "start", "end"]) {
      bar[name].addEventListener("pointerdown", (event) => this.drag(event, id, name));
      bar[name].addEventListener("keydown", (event) => this.press(event, id, name));
      bar[name].addEventListener("blur", () => this.settle(id));
    }
    bar.body.addEventListener("focus", () => this.chosen(id, false));
    return bar;
  }

  /* A span after its body or one of its ends moved by so many seconds. */
  shifted({ start, end }, name, by) {
    if (name === "start") return { start: round(Math.min(end - SHORTEST, Math.max(0, start + by))), end };
    if (name === "end") return { start, end: round(Math.max(start + SHORTEST, Math.min(this.total, end + by))) };
    const held = Math.min(this.total - end, Math.max(-start, by));
    return { start: round(start + held), end: round(end + held) };
  }

  drag(event, id, name) {
    if (event.button) return;
    event.preventDefault();
    event.stopPropagation();
    const bar = this.bars.get(id), from = bar.step.place, at = event.clientX, target = event.currentTarget;
    const perPixel = this.total / this.track.getBoundingClientRect().width;
    target.focus({ preventScroll: true });
    target.setPointerCapture(event.pointerId);
    this.chosen(id, false);
    const move = (next) => {
      if (Math.abs(next.clientX - at) > 2) this.dragged = id;
      if (this.dragged !== id) return;
      this.place(bar, this.shifted(from, name, (next.clientX - at) * perPixel));
      this.seek(name === "end" ? bar.now.end : bar.now.start);
    };
    const end = (last) => {
      for (const kind of ["pointermove", "pointerup", "pointercancel"]) target.removeEventListener(kind, kind === "pointermove" ? move : end);
      if (this.dragged !== id) return last.type === "pointerup" && this.seek(this.second(last));
      this.dragged = null;
      if (last.type === "pointercancel") this.place(bar, from);
      else this.moved(id, bar.now);
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", end);
    target.addEventListener("pointercancel", end);
  }

  /* Arrows move what has the focus by a tenth, with Shift by a second; it is taken when they rest. */
  press(event, id, name) {
    const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
    if (!way || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const bar = this.bars.get(id);
    this.nudged = id;
    this.place(bar, this.shifted(bar.now, name, way * (event.shiftKey ? 1 : 0.1)));
    this.seek(name === "end" ? bar.now.end : bar.now.start);
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.settle(id), SETTLED);
  }

  settle(id) {
    clearTimeout(this.resting);
    const bar = this.bars.get(id);
    if (this.nudged !== id || !bar) return;
    this.nudged = null;
    const { start, end } = bar.step.place;
    if (bar.now.start !== start || bar.now.end !== end) this.moved(id, bar.now);
  }

  scrub(event) {
    if (event.button || event.target.closest(".bar-box")) return;
    const go = (next) => this.seek(this.second(next));
    const end = () => {
      this.track.removeEventListener("pointermove", go);
      for (const kind of ["pointerup", "pointercancel"]) this.track.removeEventListener(kind, end);
    };
    if (event.pointerType !== "touch") {   /* a finger scrolls the timeline */
      this.track.setPointerCapture(event.pointerId);
      this.track.addEventListener("pointermove", go);
    }
    for (const kind of ["pointerup", "pointercancel"]) this.track.addEventListener(kind, end);
    go(event);
  }
}

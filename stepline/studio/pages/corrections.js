/* What a person changes of a video: shown at once, sent in its order, kept in this browser until the studio has it. */
import { labelled } from "./details.js";
import { ask, clock, kept, newId, plural, RequestError, tell, tenths, verdictWords } from "./studio.js";

const PAUSE = 2000;   // ms before what could not be sent is sent again

const placed = (step, span) => ({ ...step, start: span.start, end: span.end, spans: [[span.start, span.end], ...step.spans.slice(1)] });
const blank = (id, text) => ({ id, text, kind: "do", start: null, end: null, spans: [], at: null, said: null, status: null, score: null, sources: [] });

/* Whether an edit is of the video as a whole. */
const isLabel = (edit) => ["title", "tag", "untag", "metadata"].includes(edit.do);

const isOfSentences = (edit) => ["words", "join", "drop"].includes(edit.do);

/* The sentences after one edit, as stepline/library/transcript_edits.py makes them, without the times of changed words. */
const spoken = (sentences, edit) => {
  if (edit.do === "words") return sentences.map((each) => (each.id === edit.sentence ? { ...each, text: edit.text, words: [] } : each));
  if (edit.do === "drop") return sentences.filter(({ id }) => id !== edit.sentence);
  const [first, second] = edit.sentences.map((id) => sentences.find((each) => each.id === id));
  if (!first || !second) return sentences;
  const words = first.words.length && second.words.length ? [...first.words, ...second.words] : [];
  const one = { ...first, text: `${first.text} ${second.text}`, words, end: Math.max(first.end, second.end) };
  return sentences.filter((each) => each !== second).map((each) => (each === first ? one : each));
};

/* The steps after one edit, as stepline/library/corrections.py makes them; what it says replaces this once it is saved. */
export const applied = (steps, edit, sentences = []) => {
  if (isLabel(edit) || isOfSentences(edit)) return steps;
  const found = (id) => steps.find((step) => step.id === id);
  const swapped = (id, ...by) => steps.flatMap((step) => (step.id === id ? by : [step]));
  if (edit.do === "change") {
    const { do: _, step: id, span, ...fields } = edit;
    const step = found(id);
    if (!step) return steps;
    const judged = fields.status ? { basis: null, doubt: null } : {};   // by a person
    return swapped(id, { ...(span ? placed(step, span) : step), ...fields, ...judged });
  }
  if (edit.do === "add") {
    const said = sentences.find(({ id }) => id === edit.sentence), span = edit.span || said;
    const step = { ...blank(edit.id, edit.text ?? said?.text ?? ""), kind: edit.kind || "do" };
    const judged = edit.sentence === undefined ? { status: "seen", score: 1 } : { status: "placed", said: [span?.start, span?.end] };
    const whole = span ? { ...placed(step, span), ...judged } : step;
    return found(edit.after) ? steps.flatMap((each) => (each.id === edit.after ? [each, whole] : [each])) : [whole, ...steps];
  }
  if (edit.do === "delete") return swapped(edit.step);
  if (edit.do === "split") {
    const step = found(edit.step);
    if (!step || step.start === null) return steps;
    const first = placed({ ...step, text: edit.texts[0] }, { start: step.start, end: edit.at });
    return swapped(edit.step, first, placed({ ...step, id: edit.id, text: edit.texts[1] }, { start: edit.at, end: step.end }));
  }
  if (edit.do === "merge") {
    const all = edit.steps.map(found).filter(Boolean), shown = all.filter((step) => step.start !== null);
    if (all.length < 2) return steps;
    const text = edit.text ?? all.map((step) => step.text).join("; ");
    const span = { start: Math.min(...shown.map(({ start }) => start)), end: Math.max(...shown.map(({ end }) => end)) };
    const one = shown.length ? placed({ ...all[0], text }, span) : { ...all[0], text };
    return swapped(all[0].id, one).filter((step) => step.id === one.id || !edit.steps.includes(step.id));
  }
  const place = new Map(edit.steps.map((id, index) => [id, index]));   // order
  return [...steps].sort((a, b) => (place.get(a.id) ?? Infinity) - (place.get(b.id) ?? Infinity));
};

/* An edit in words. name: what its steps are called. */
export const inWords = (edit, name) => {
  const span = edit.span && `${clock(edit.span.start)}–${clock(edit.span.end)}`;
  if (edit.do === "change") {
    const parts = [
      edit.text !== undefined && edit.text !== null && `text “${edit.text}”`, span && `at ${span}`,
      edit.status && verdictWords(edit), edit.kind && (edit.kind === "avoid" ? "to avoid" : "to do"),
      typeof edit.at === "number" && `picture of ${tenths(edit.at)}`,
    ].filter(Boolean);
    return `${name(edit.step)}${edit.is_written ? " written again" : ""}: ${parts.join(", ")}`;
  }
  if (edit.do === "words") return `words of sentence ${edit.sentence + 1}: “${edit.text}”`;
  if (edit.do === "join") return `joined sentences ${edit.sentences.map((id) => id + 1).join(" and ")}`;
  if (edit.do === "drop") return `dropped sentence ${edit.sentence + 1}`;
  if (edit.do === "title") return `title “${edit.title}”`;
  if (edit.do === "tag") return `tag “${edit.tag}”`;
  if (edit.do === "untag") return `without the tag “${edit.tag}”`;
  if (edit.do === "metadata") return edit.value === null ? `without “${edit.name}”` : `${edit.name}: “${edit.value}”`;
  if (edit.do === "add") return edit.text ? `added “${edit.text}”${span ? ` at ${span}` : ""}` : `made a step of sentence ${edit.sentence + 1}`;
  if (edit.do === "delete") return `deleted ${name(edit.step)}`;
  if (edit.do === "split") return `split ${name(edit.step)} at ${clock(edit.at)}`;
  if (edit.do === "merge") return `merged ${edit.steps.map(name).join(" and ")}`;
  return `put ${plural(edit.steps.length, "step")} in order`;
};

/* Which corrections stand: an undo that is not undone takes its own away. */
export const standing = (corrections) => {
  const undone = new Set();
  for (const { id, undoes } of [...corrections].reverse()) if (undoes && !undone.has(id)) undone.add(undoes);
  return corrections.filter(({ id }) => !undone.has(id));
};

/* What a window keeps is its own while it is open: it holds a lock by that name, which its end lets go. Browsers have
   no locks on plain http from another machine; there what is sent twice counts once. */
const hold = (name) => navigator.locks?.request(name, () => new Promise(() => {}));
const ifLeft = (name, act) => (navigator.locks ? navigator.locks.request(name, { ifAvailable: true }, (lock) => lock && act()) : act());

/* The corrections of one video. `changed` is called when anything is, `state` tells whether all is saved ("saved",
   "saving", "offline"), `saved` is given the reply to each correction and the correction, `conflict` asks: it is given a correction and what others did, and resolves to whether to keep it. */
export class Corrections {
  constructor(video, { changed, state, saved, conflict, refused }) {
    Object.assign(this, { video, changed, state, saved, conflict, refused });
    this.path = `/api/videos/${video}`;
    this.window = newId();
    this.machine = {};
    this.pictures = {};
    this.base = 0;
    this.stamp = "";   /* of the record, which a correction names: another record has other steps */
    this.history = [];
    this.sent = [];
    this.waiting = [];
    this.others = new Set();   /* ids of what other windows changed while this one was open, which its undo leaves alone */
    this.sending = false;
    this.missed = 0;   /* the revision that others made while this window was sending */
    this.steps = [];
    this.heardSentences = [];   /* as the studio has them, with the number that corrections name each by */
    this.sentences = [];
  }

  /* Load the video of a library, and send what a window that is closed could not. */
  async load(library) {
    await this.refresh();
    const store = `stepline-unsaved:${library}:${this.video}:`;
    this.store = store + this.window;
    hold(this.store);
    for (const name of kept.names().filter((each) => each.startsWith(store))) await ifLeft(name, () => this.takeOver(name));
    this.show();
    if (this.waiting.length) this.send();
    else this.state("saved");
  }

  takeOver(name) {
    this.waiting.push(...kept.get(name, []));
    this.keep();
    kept.remove(name);
  }

  async refresh() {
    let reply, more;
    do {   /* both of one revision; the transcript is long, and is asked for where it changed */
      more = await ask(`${this.path}/history?from=${this.history.length}`);
      const steps = this.record && !this.changesSentences(more.corrections);
      reply = await ask(`${this.path}/record${steps ? "?part=steps" : ""}`);
    } while (reply.revision !== this.history.length + more.corrections.length);
    if (this.record && reply.stamp !== this.stamp) {   /* understood again: all of it is another */
      this.record = null;
      await this.refresh();
      return;
    }
    this.stamp = reply.stamp;
    this.record = { ...this.record, ...reply.record };
    this.machine = reply.machine;
    this.pictures = reply.pictures;
    if (reply.record.transcript !== undefined) {
      this.heardSentences = (reply.record.transcript?.sentences || []).map((each, at) => ({ ...each, id: reply.sentences[at] }));
    }
    this.base = reply.revision;
    const own = new Set([...this.sent, ...this.waiting].map(({ id }) => id));
    if (this.store) for (const { id } of more.corrections) if (!own.has(id)) this.others.add(id);
    this.history = [...this.history, ...more.corrections];
    const known = new Set(this.history.map(({ id }) => id));
    this.sent = this.sent.filter(({ id }) => !known.has(id));
    this.show();
  }

  /* Whether corrections, or what they undo, are of sentences. */
  changesSentences(corrections) {
    const all = new Map([...this.history, ...corrections].map((each) => [each.id, each]));
    return corrections.some((each) => {
      while (each.undoes) each = all.get(each.undoes);
      return each.edits.some(isOfSentences);
    });
  }

  show() {
    const stand = new Set(standing(this.all).map(({ id }) => id));
    const edits = [...this.sent, ...this.waiting].flatMap((each) => (stand.has(each.id) && each.edits) || []);
    this.sentences = edits.filter(isOfSentences).reduce(spoken, this.heardSentences);
    this.steps = edits.reduce((steps, edit) => applied(steps, edit, this.sentences), this.record.steps);
    const { title, tags = [], metadata = {} } = this.record.video;
    this.labels = edits.filter(isLabel).reduce(labelled, { title, tags, metadata });
    this.title = this.labels.title;
    this.changed();
  }

  /* What the record has taken in, what the studio has saved since, and what is not saved yet. */
  get all() { return [...this.history, ...this.sent, ...this.waiting]; }

  /* The second of a step's picture on the page, undefined for a step that was changed since it was loaded. */
  pictureOf(step) { return this.record.steps.includes(step) ? this.pictures[step.id] : undefined; }

  /* The saved corrections of steps and sentences that stand. */
  get stepCorrections() { return standing(this.history).filter(({ edits }) => edits?.some((each) => !isLabel(each))); }

  /* What stands of this person. Two people may not have told their names, and are both "me". */
  get ownStanding() { return standing(this.all).filter(({ by, id }) => by === this.by && !this.others.has(id)); }

  /* The edits that made sentences into steps which are still there. */
  get madeSteps() {
    const there = new Set(this.steps.map(({ id }) => id));
    return standing(this.all).flatMap(({ edits = [] }) => edits.filter(({ do: act, id, sentence }) => act === "add" && sentence !== undefined && there.has(id)));
  }

  /* Another window has changed the video. */
  async heard(revision) {
    if (revision <= this.base && revision !== 0) return;
    if (this.waiting.length || this.sending) this.missed = revision || Infinity;
    else await this.refresh();
  }

  edit(...edits) { this.take({ edits }); }
  revert(id) { this.take({ undoes: id }); }

  take(what) {
    tell("");   /* of an earlier change */
    this.waiting.push({ id: newId(), by: this.by, window: this.window, base: this.base, record: this.stamp, ...what });
    this.keep();
    this.show();
    this.send();
  }

  keep() {
    if (this.waiting.length) kept.set(this.store, this.waiting);
    else kept.remove(this.store);
  }

  async send() {
    if (this.sending) return;
    this.sending = true;
    try {
      do {
        while (this.waiting.length) {
          this.state("saving");
          await this.sendFirst();
        }
        this.missed = 0;
        await this.refresh();
      } while (this.waiting.length || this.missed > this.base);   /* what was changed while the studio answered */
      this.state("saved");
    } catch (error) {
      this.state("offline", error instanceof RequestError ? error.message : undefined);
      setTimeout(() => this.send(), PAUSE);
    } finally {
      this.sending = false;
    }
  }

  async sendFirst() {
    const [first] = this.waiting;
    try {
      this.saved(await ask(`${this.path}/corrections`, { method: "POST", body: first }), first);
      this.sent.push(first);
    } catch (error) {
      if (!(error instanceof RequestError) || ![400, 409, 422].includes(error.status)) throw error;
      const clash = error.reply.edits && !first.undoes;   /* an undo waits until what rests on it is undone */
      if (clash && await this.conflict(first, error.reply)) {
        this.waiting[0] = { ...first, base: error.reply.revision };
        return this.keep();
      }
      if (!clash) this.refused(error.message);
    }
    this.waiting.shift();
    this.keep();
  }

  /* The last change of this person that stands, and the last undo that no change came after. */
  lastChange() { return this.ownStanding.findLast(({ undoes }) => !undoes); }
  lastUndo() {
    const stand = this.ownStanding;
    /* What was made for an earlier record stays undone. */
    const plain = new Set(this.all.filter(({ undoes, record }) => !undoes && (!record || record === this.stamp)).map(({ id }) => id));
    const undo = stand.findLast(({ undoes }) => plain.has(undoes));
    const after = undo && stand.slice(stand.indexOf(undo) + 1).some(({ undoes }) => !undoes);
    return after ? undefined : undo;
  }
}

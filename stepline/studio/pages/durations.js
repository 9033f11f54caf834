/* How long steps are in the film, and how long they let a thing wait: the words of stepline/outputs/text.py. */
const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];

const inUnits = (seconds) => {
  const total = seconds % 1 === 0.5 ? 2 * Math.round(seconds / 2) : Math.round(seconds);   // half to even, as Python does
  const found = UNITS.find(([size]) => total >= size);
  if (!found) return `${total} s`;
  const [size, unit, smaller, smallerUnit] = found, rest = Math.floor((total % size) / smaller);
  return `${Math.floor(total / size)} ${unit}${rest ? ` ${rest} ${smallerUnit}` : ""}`;
};

/* A time or a range of it: "45 s", "8-10 min", "1 h 30 min". high: null for "at least 10 min". */
export const secondsText = (low, high = low) => {
  if (high === null) return `at least ${inUnits(low)}`;
  if (low === high) return inUnits(low);
  const first = inUnits(low), last = inUnits(high), [count, ...unit] = first.split(" ");
  return `${unit.length === 1 && last.split(" ").slice(1).join(" ") === unit[0] ? count : first}-${last}`;
};

export const isShown = ({ start, status }) => start !== null && !["said_only", "not_found"].includes(status);

/* "20 s + 8-10 min wait (the cookies)", "" without either. */
export const stepLengths = (step) => {
  const { low, high, what } = step.wait ?? {};
  return [isShown(step) && secondsText(Math.max(1, Math.floor(step.end) - Math.floor(step.start))), low && `${secondsText(low, high)} wait${what && !["it", "them"].includes(what) ? ` (${what})` : ""}`].filter(Boolean).join(" + ");
};

/* "1 min of film and 8-10 min of waiting", "" without either. What overlaps counts once. */
export const totalTimes = (steps) => {
  let film = 0, until = 0;
  for (const { start, end } of steps.filter(isShown).sort((a, b) => a.start - b.start)) {
    film += Math.max(0, end - Math.max(start, until));
    until = Math.max(until, end);
  }
  const waits = steps.flatMap(({ wait }) => wait ?? []);
  const sum = (end) => (waits.some((wait) => wait[end] === null) ? null : waits.reduce((all, wait) => all + wait[end], 0));
  return [film && `${secondsText(film)} of film`, waits.length && `${secondsText(sum("low"), sum("high"))} of waiting`].filter(Boolean).join(" and ");
};

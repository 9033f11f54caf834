/* How long something is done, as the words of a step say: "for 10 minutes", "two to three hours", "half an hour". */
const NUMBERS = {
  a: 1, an: 1, one: 1, two: 2, three: 3, four: 4, five: 5, six: 6, seven: 7, eight: 8, nine: 9, ten: 10, twelve: 12,
  fifteen: 15, twenty: 20, thirty: 30, forty: 40, fifty: 50, sixty: 60, ninety: 90,
};
const UNITS = [[/^s/, 1], [/^m/, 60], [/^h/, 3600]];
const NUMBER = `\\d+(?:[.,]\\d+)?|${Object.keys(NUMBERS).join("|")}`;
const FOUND = new RegExp(
  `\\b(?:(half an?|quarter of an?)|(${NUMBER})(?:\\s*(?:-|–|to|or)\\s*(${NUMBER}))?(\\s+and\\s+a\\s+half)?)[\\s-]*`
  + "(seconds?|secs?|s|minutes?|mins?|hours?|hrs?|h)\\b", "giu");

const value = (text) => NUMBERS[text.toLowerCase()] ?? Number(text.replace(",", "."));

/* The spans of time that a text names, in seconds, each with its words; of "8 to 10 minutes" the shorter, to look then.
   Less than 3 s is no time to wait ("a second coat"). */
export const durations = (text) => [...text.matchAll(FOUND)].map(([words, part, low, , half, unit]) => {
  const count = part ? (part.toLowerCase().startsWith("half") ? 0.5 : 0.25) : value(low) + (half ? 0.5 : 0);
  const [, seconds] = UNITS.find(([start]) => start.test(unit.toLowerCase()));
  return { text: words.trim(), seconds: Math.round(count * seconds) };
}).filter(({ seconds }) => seconds >= 3 && seconds <= 86400);

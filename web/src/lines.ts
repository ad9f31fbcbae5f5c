// What a plot draws, and what it says of it at a place: curves, corridors that were expected, levels.
import { short } from "./format";

interface Named {
  name: string; // unique in its plot, as it is read out
  of: string; // the run, where a plot has several
  what: string; // of it: "training", "validation ema"
  colour: string;
  dash?: number[]; // of its strokes
}

export interface Line extends Named {
  x: number[];
  y: number[];
  low?: number[];
  high?: number[];
  points?: boolean; // few points: each is shown
  width?: number;
}

export interface Corridor extends Named {
  x: number[];
  low: number[];
  high: number[];
  until: number; // where its run is now
}

export interface Level extends Named {
  value: number;
}

export interface ValueText extends Named {
  text: string;
  filled: boolean; // a corridor
}

export const lastX = (lines: { x: number[] }[]) => Math.max(...lines.filter((line) => line.x.length > 0).map((line) => line.x[line.x.length - 1]));

// The first place whose x is not below.
function lowerBound(x: number[], value: number): number {
  let low = 0, high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function indexNear(x: number[], value: number): number {
  const after = Math.min(lowerBound(x, value), x.length - 1);
  return after > 0 && value - x[after - 1] < x[after] - value ? after - 1 : after;
}

// Along the line that joins two points; nothing outside.
function between(x: number[], y: number[], at: number): number | null {
  const after = lowerBound(x, at);
  if (after === x.length) return null;
  if (x[after] === at) return y[after];
  if (after === 0) return null;
  return y[after - 1] + ((y[after] - y[after - 1]) * (at - x[after - 1])) / (x[after] - x[after - 1]);
}

// Of a curve the value of its nearest point, unless it ends before or begins after.
function valueNear(line: Line, at: number): number | null {
  const index = indexNear(line.x, at), first = line.x[0], last = line.x[line.x.length - 1];
  const slack = (last - first) / 50;
  return at < first - slack || at > last + slack ? null : line.y[index];
}

// At x, or (null) the newest of everything.
export function valuesAt(at: number | null, lines: Line[], corridors: Corridor[], levels: Level[]): ValueText[] {
  const drawn = lines.filter((line) => line.x.length > 0);
  if (drawn.length === 0) return [];
  return [
    ...drawn.map((line) => ({ ...line, filled: false, text: short(at === null ? line.y[line.y.length - 1] : valueNear(line, at)) })),
    ...corridors
      .filter((one) => one.x.length > 0)
      .map((one) => {
        const place = at ?? one.until;
        const [low, high] = [between(one.x, one.low, place), between(one.x, one.high, place)];
        return { ...one, filled: true, text: low === null || high === null ? "–" : `${short(low)} to ${short(high)}` };
      }),
    ...levels.map((level) => ({ ...level, filled: false, dash: [2, 4], text: short(level.value) })),
  ];
}

// As far as the run has come and a little further: a corridor to the end of a long run would leave no room for its
// beginning.
export function corridorUntil(x: number[], low: number[], high: number[], end: number): { x: number[]; low: number[]; high: number[] } {
  const count = x.filter((value) => value <= end).length, at = { x: x.slice(0, count), low: low.slice(0, count), high: high.slice(0, count) };
  if (count === x.length || count === 0 || x[count - 1] === end) return at;
  at.x.push(end);
  at.low.push(between(x, low, end)!);
  at.high.push(between(x, high, end)!);
  return at;
}

// As TensorBoard does it: a moving average that does not lean on its beginning.
export function smoothed(values: number[], weight: number): number[] {
  if (weight <= 0) return values;
  let last = 0, taken = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    last = last * weight + value * (1 - weight);
    taken += 1;
    return last / (1 - weight ** taken);
  });
}

// Where a plot's axes have their marks, and what is written there.
const kHour = 3600;
// Up to any length: without one that fits, uPlot would never end.
export const kRoundSeconds = [
  ...[0.001, 0.01, 0.1, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800],
  ...[1, 2, 3, 6, 12, 24, 48, 120, 240, 480].map((hours) => hours * kHour),
  ...Array.from({ length: 20 }, (_, power) => 24 * kHour * 50 * 10 ** power),
];

// Of a logarithmic axis: 1 to 9 of every power of ten, and the ends where hardly one of these is between them. uPlot's own
// never end where the axis begins less than a twentieth below such a power.
export function logMarks(low: number, high: number): number[] {
  if (!(low > 0 && high > low && Number.isFinite(high))) return [];
  const marks: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power)
    for (let digit = 1; digit < 10; ++digit) marks.push(Number(`${digit}e${power}`)); // 3e-1 as it is written
  const inside = marks.filter((mark) => mark >= low && mark <= high);
  return inside.length > 1 ? inside : [low, ...inside, high];
}

// Seconds, minutes or hours, whichever are round.
export function roundTime(seconds: number): string {
  if (seconds % 60 !== 0) return `${Number(seconds.toFixed(2))} s`;
  const minutes = Math.floor((seconds % kHour) / 60);
  return seconds < kHour ? `${minutes} m` : `${Math.floor(seconds / kHour)} h${minutes ? ` ${minutes}` : ""}`;
}

export function tick(value: number): string {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e4 || size < 1e-3) return value.toExponential(0).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

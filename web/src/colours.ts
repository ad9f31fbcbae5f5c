// From dark to light through violet and orange: equal steps of what is measured look like equal steps.
const kStops: [number, number, number][] = [
  [6, 6, 18], [38, 16, 78], [92, 24, 110], [150, 40, 104], [206, 66, 80], [244, 116, 58], [253, 180, 74], [252, 246, 178],
];

export function heat(share: number): [number, number, number] {
  const at = Math.min(1, Math.max(0, share)) * (kStops.length - 1);
  const first = Math.min(kStops.length - 2, Math.floor(at)), rest = at - first;
  return [0, 1, 2].map((i) => Math.round(kStops[first][i] * (1 - rest) + kStops[first + 1][i] * rest)) as [number, number, number];
}

// A plot with several curves: bands from lowest to highest, hover with values, a zoom that stays while data comes in.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { short } from "./format";
import { isDark } from "./store";

export interface Line {
  name: string;
  colour: string;
  x: number[];
  y: number[];
  low?: number[];
  high?: number[];
  dash?: number[]; // of its strokes
  points?: boolean; // few points: each is shown
  width?: number;
}

export interface PlotProps {
  title: string;
  lines: Line[];
  logX?: boolean;
  logY?: boolean;
  xLabel: string;
  xText?: (x: number) => string;
  levels?: { name: string; value: number; colour: string }[]; // horizontal
  zoom: [number, number] | null;
  onZoom: (range: [number, number] | null) => void;
  height?: number;
}

const kSync = uPlot.sync("steps");

interface Built {
  data: uPlot.AlignedData;
  series: uPlot.Series[];
  bands: uPlot.Band[];
  key: string;
}

// A curve that goes below zero has no logarithm: such a plot stays as it is.
const canBeLog = (lines: Line[]) => lines.every((line) => line.y.every((value) => value > 0));

function build({ lines, levels, logX, logY, xLabel, xText }: PlotProps): Built {
  const tables: uPlot.AlignedData[] = [];
  const series: uPlot.Series[] = [
    { label: xLabel, value: (_, value) => (value === null ? "–" : (xText ?? ((x: number) => x.toLocaleString("en")))(value)) },
  ];
  const bands: uPlot.Band[] = [];
  const positive = (values: number[]) => (logY ? values.map((value) => (value > 0 ? value : null)) : values);
  for (const line of lines) {
    if (line.x.length === 0) continue;
    const x = logX ? line.x.map((value) => Math.max(value, 1)) : line.x;
    tables.push([x, positive(line.y)] as uPlot.AlignedData);
    series.push({
      label: line.name,
      stroke: line.colour,
      width: line.width ?? 1.75,
      dash: line.dash,
      spanGaps: true,
      points: { show: line.points ? line.x.length <= 60 : line.x.length < 3, size: 4.5, fill: line.colour },
      value: (_, value) => short(value),
    });
    if (line.low && line.high) {
      const at = series.length;
      for (const values of [line.high, line.low]) {
        tables.push([x, positive(values)] as uPlot.AlignedData);
        series.push({ label: "", stroke: "transparent", width: 0, spanGaps: true, points: { show: false } });
      }
      bands.push({ series: [at, at + 1], fill: line.colour + "2e" });
    }
  }
  const ends = lines.filter((line) => line.x.length > 0);
  if (ends.length > 0)
    for (const level of levels ?? []) {
      const first = Math.min(...ends.map((line) => line.x[0]));
      const last = Math.max(...ends.map((line) => line.x[line.x.length - 1]));
      tables.push([[Math.max(first, logX ? 1 : first), last], [level.value, level.value]] as uPlot.AlignedData);
      series.push({
        label: level.name,
        stroke: level.colour,
        width: 1.25,
        dash: [2, 4],
        spanGaps: true,
        points: { show: false },
        value: (_, value) => short(value ?? level.value),
      });
    }
  const data = tables.length > 0 ? uPlot.join(tables) : ([[]] as unknown as uPlot.AlignedData);
  const key = JSON.stringify([
    series.map((one) => [one.label, one.stroke, one.dash]),
    Boolean(logX),
    Boolean(logY),
    xLabel,
    isDark(),
  ]);
  return { data, series, bands, key };
}

export function Plot(props: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const key = useRef("");
  const zoom = useRef(props.zoom);
  const onZoom = useRef(props.onZoom);
  const [width, setWidth] = useState(0);
  const [said, setSaid] = useState("");
  zoom.current = props.zoom;
  onZoom.current = props.onZoom;

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(box.current!);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);

  useEffect(() => {
    if (!width) return;
    const logY = Boolean(props.logY) && canBeLog(props.lines);
    const built = build({ ...props, logY });
    const height = props.height ?? 230;
    if (plot.current && key.current === built.key) {
      if (plot.current.width !== width || plot.current.height !== height) plot.current.setSize({ width, height });
      plot.current.setData(built.data); // scales ask for the zoom themselves, so that it stays
      return;
    }
    plot.current?.destroy();
    const style = getComputedStyle(document.documentElement);
    const grid = { stroke: style.getPropertyValue("--line").trim(), width: 1 };
    const text = style.getPropertyValue("--dim").trim();
    const axis = { stroke: text, grid, ticks: grid, font: "11px system-ui, sans-serif" };
    const options: uPlot.Options = {
      width,
      height,
      series: built.series,
      bands: built.bands,
      scales: {
        x: { time: false, distr: props.logX ? 3 : 1, range: (_, min, max) => zoom.current ?? [min, Math.max(max, min + 1e-9)] },
        y: {
          distr: logY ? 3 : 1,
          range: logY ? (_, min, max) => [(min || 1e-6) / 1.15, Math.max(max || 1, min || 1e-6) * 1.15] : undefined,
        },
      },
      axes: [
        { ...axis, size: 34, values: props.xText ? (_, values) => values.map((value) => (value === null ? "" : props.xText!(value))) : undefined },
        { ...axis, size: 58, values: (_, values) => values.map((value) => (value === null ? "" : tick(value))) },
      ],
      cursor: { sync: { key: kSync.key, setSeries: false }, drag: { x: true, y: false, setScale: false }, focus: { prox: 24 } },
      focus: { alpha: 0.35 },
      legend: { live: true, isolate: false },
      hooks: {
        setSelect: [
          (self) => {
            if (self.select.width < 4) return;
            const from = self.posToVal(self.select.left, "x"), to = self.posToVal(self.select.left + self.select.width, "x");
            self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            onZoom.current([from, to]);
          },
        ],
        ready: [(self) => self.over.addEventListener("dblclick", () => onZoom.current(null))],
      },
    };
    key.current = built.key;
    plot.current = new uPlot(options, built.data, box.current!);
    (box.current as HTMLDivElement & { plot?: uPlot }).plot = plot.current; // for those who test the page
    // Names of bands are empty: they are no rows of the legend.
    box.current!.querySelectorAll<HTMLElement>(".u-legend .u-series").forEach((row, index) => {
      if (built.series[index]?.label === "") row.style.display = "none";
    });
  });

  // Values and zoom without a mouse.
  const onKey = (event: KeyboardEvent) => {
    const self = plot.current;
    if (!self || event.ctrlKey || event.metaKey || event.altKey) return;
    const width_ = self.over.clientWidth;
    const left = self.cursor.left !== undefined && self.cursor.left !== null && self.cursor.left >= 0 ? self.cursor.left : width_ / 2;
    const go = (by: number) => self.setCursor({ left: Math.min(width_ - 1, Math.max(0, left + by * width_)), top: self.over.clientHeight / 2 });
    const nearer = (by: number) => {
      const at = self.posToVal(left, "x"), from = self.scales.x.min!, to = self.scales.x.max!;
      onZoom.current([at - (at - from) * by, at + (to - at) * by]);
    };
    const act: Record<string, () => void> = {
      ArrowLeft: () => go(event.shiftKey ? -0.1 : -0.02),
      ArrowRight: () => go(event.shiftKey ? 0.1 : 0.02),
      "+": () => nearer(0.7),
      "=": () => nearer(0.7),
      "-": () => nearer(1 / 0.7),
      "0": () => onZoom.current(null),
      Escape: () => onZoom.current(null),
    };
    if (!act[event.key]) return;
    act[event.key]();
    event.preventDefault();
    const at = self.cursor.idx;
    if (at === null || at === undefined || !event.key.startsWith("Arrow")) return;
    const values = self.series.slice(1).flatMap((one, i) => {
      const value = self.data[i + 1][at];
      return one.label && value !== null && value !== undefined ? [`${one.label} ${short(value)}`] : [];
    });
    setSaid(`${props.xLabel} ${(props.xText ?? String)(self.data[0][at])}: ${values.join(", ") || "no value"}`);
  };

  const shown = props.lines.filter((line) => line.x.length > 0);
  const spoken = shown.map((line) => `${line.name}: now ${short(line.y[line.y.length - 1])}`).join("; ");
  return (
    <>
      <div
        class="plot"
        ref={box}
        tabIndex={0}
        role="group"
        aria-roledescription="plot"
        aria-label={`${props.title}. ${spoken || "no values yet"}`}
        aria-keyshortcuts="ArrowLeft ArrowRight + - 0"
        onKeyDown={onKey}
      />
      <span class="unseen" aria-live="polite">{said}</span>
    </>
  );
}

function tick(value: number): string {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size >= 1e4 || size < 1e-3) return value.toExponential(0).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
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

export function Spark({ values, colour, label }: { values: (number | null)[]; colour: string; label: string }) {
  const known = values.filter((value): value is number => value !== null);
  if (known.length < 2) return <div class="spark empty" aria-hidden="true" />;
  const low = Math.min(...known), high = Math.max(...known), span = high - low || 1;
  const points = known.map((value, i) => `${((i / (known.length - 1)) * 100).toFixed(2)},${(29 - ((value - low) / span) * 28).toFixed(2)}`);
  return (
    <svg class="spark" viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label={label}>
      <polygon points={`0,30 ${points.join(" ")} 100,30`} fill={colour} opacity="0.14" />
      <polyline points={points.join(" ")} fill="none" stroke={colour} stroke-width="1.6" vector-effect="non-scaling-stroke" stroke-linejoin="round" />
    </svg>
  );
}

// A plot with several curves: bands from lowest to highest, what was expected behind them, a zoom that stays while data
// comes in, and a legend that says the values where the mouse or the keyboard points.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./plot.css";
import { Legend, type LegendHandle } from "./legend";
import { type Corridor, indexNear, type Level, type Line, lastX, valuesAt } from "./lines";
import { isDark } from "./store";
import { kRoundSeconds, logMarks, roundTime, tick } from "./ticks";

export interface PlotProps {
  title: string;
  lines: Line[];
  corridors?: Corridor[];
  levels?: Level[]; // horizontal
  logX?: boolean;
  logY?: boolean;
  xLabel: string;
  xText?: (x: number) => string; // where x are seconds
  zoom: [number, number] | null;
  onZoom: (range: [number, number] | null) => void;
  height?: number;
  note?: string; // said where there is no curve
}

const kSync = uPlot.sync("steps");
const kLogAxis: Partial<uPlot.Axis> = { splits: (_, __, low, high) => logMarks(low, high) };

interface Built {
  data: uPlot.AlignedData;
  series: uPlot.Series[];
  bands: uPlot.Band[];
  key: string;
}

// A curve that goes below zero has no logarithm: such a plot stays as it is.
const canBeLog = (lines: Line[]) => lines.every((line) => line.y.every((value) => value > 0));

// Two edges without a name, and what is between them.
function addBand(series: uPlot.Series[], bands: uPlot.Band[], edge: Partial<uPlot.Series>, fill: string) {
  const at = series.length;
  for (let i = 0; i < 2; ++i) series.push({ label: "", spanGaps: true, points: { show: false }, ...edge });
  bands.push({ series: [at, at + 1], fill });
}

function build({ lines, corridors, levels, logX, logY, xLabel }: PlotProps): Built {
  const tables: uPlot.AlignedData[] = [];
  const series: uPlot.Series[] = [{ label: xLabel }];
  const bands: uPlot.Band[] = [];
  const positive = (values: number[]) => (logY ? values.map((value) => (value > 0 ? value : null)) : values);
  const steps = (x: number[]) => (logX ? x.map((value) => Math.max(value, 1)) : x);
  const add = (x: number[], values: number[]) => tables.push([steps(x), positive(values)] as uPlot.AlignedData);
  for (const { x, low, high, colour, dash } of corridors ?? []) {
    if (x.length === 0) continue;
    add(x, high);
    add(x, low);
    addBand(series, bands, { stroke: `${colour}b0`, width: 1, dash }, `${colour}30`);
  }
  for (const line of lines) {
    if (line.x.length === 0) continue;
    add(line.x, line.y);
    series.push({
      label: line.name,
      stroke: line.colour,
      width: line.width ?? 1.75,
      dash: line.dash,
      spanGaps: true,
      points: { show: line.points ? line.x.length <= 60 : line.x.length < 3, size: 4.5, fill: line.colour },
    });
    if (line.low && line.high) {
      add(line.x, line.high);
      add(line.x, line.low);
      addBand(series, bands, { stroke: "transparent", width: 0 }, `${line.colour}2e`);
    }
  }
  const ends = lines.filter((line) => line.x.length > 0);
  if (ends.length > 0)
    for (const level of levels ?? []) {
      const first = Math.min(...ends.map((line) => line.x[0])), last = lastX(ends);
      tables.push([[Math.max(first, logX ? 1 : first), last], [level.value, level.value]] as uPlot.AlignedData);
      series.push({ label: level.name, stroke: level.colour, width: 1.25, dash: [2, 4], spanGaps: true, points: { show: false } });
    }
  const data = tables.length > 0 ? uPlot.join(tables) : ([[]] as unknown as uPlot.AlignedData);
  const key = JSON.stringify([series.map((one) => [one.label, one.stroke, one.dash]), Boolean(logX), Boolean(logY), xLabel, isDark()]);
  return { data, series, bands, key };
}

export function Plot(props: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const legend = useRef<LegendHandle | null>(null);
  const key = useRef("");
  const zoom = useRef(props.zoom);
  const onZoom = useRef(props.onZoom);
  const [width, setWidth] = useState(0);
  const [said, setSaid] = useState("");
  const [hidden, setHidden] = useState<string[]>([]); // names
  zoom.current = props.zoom;
  // Nearer than numbers are exact there is nothing to see, and in a plot without a curve there is no place.
  onZoom.current = (range) => {
    if (range && !(range[1] - range[0] > 1e-6 * Math.max(1, Math.abs(range[1])))) return;
    props.onZoom(range);
  };
  const seen = <T extends { name: string }>(list?: T[]) => (list ?? []).filter((one) => !hidden.includes(one.name));

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
    const lines = seen(props.lines), logY = Boolean(props.logY) && canBeLog(lines);
    const built = build({ ...props, lines, corridors: seen(props.corridors), levels: seen(props.levels), logY });
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
          range: logY ? (_, min, max) => [(min || 1e-6) / 1.15, Math.max(max || 1, min || 1e-6) * 1.15] : (_, min, max) => (min === max ? [min - (Math.abs(min) || 1) / 10, max + (Math.abs(max) || 1) / 10] : uPlot.rangeNum(min, max, 0.1, true)),
        },
      },
      axes: [
        {
          ...axis,
          size: 34,
          ...(props.logX ? kLogAxis : {}),
          ...(props.xText ? { space: 64, incrs: kRoundSeconds, values: (_, values) => values.map((value) => (value === null ? "" : roundTime(value))) } : {}),
        },
        { ...axis, size: 58, ...(logY ? kLogAxis : {}), values: (_, values) => values.map((value) => (value === null ? "" : tick(value))) },
      ],
      cursor: { sync: { key: kSync.key, setSeries: false }, drag: { x: true, y: false, setScale: false }, focus: { prox: 24 } },
      focus: { alpha: 0.35 },
      legend: { show: false }, // ours has buttons and words for dashes
      hooks: {
        setCursor: [
          (self) => {
            const left = self.cursor.left ?? -1;
            legend.current?.pointAt(left < 0 ? null : self.posToVal(left, "x"));
          },
        ],
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
    if (!event.key.startsWith("Arrow") || self.data[0].length === 0) return;
    const steps = self.data[0] as number[], at = steps[indexNear(steps, self.posToVal(self.cursor.left!, "x"))];
    const all = valuesAt(at, seen(props.lines), seen(props.corridors), seen(props.levels));
    const values = all.filter(({ text }) => text !== "–").map(({ name, text }) => `${name} ${text}`);
    setSaid(`${props.xLabel} ${(props.xText ?? String)(at)}: ${values.join(", ") || "no value"}`);
  };

  const now = valuesAt(null, props.lines, props.corridors ?? [], []);
  const note = props.note ?? "no values yet";
  const spoken = now.map(({ name, text }) => `${name}: now ${text}`).join("; ");
  return (
    <>
      <div class="plot-box">
        <div
          class="plot"
          ref={box}
          tabIndex={0}
          role="group"
          aria-roledescription="plot"
          aria-label={`${props.title}. ${spoken || note}`}
          aria-keyshortcuts="ArrowLeft ArrowRight + - 0"
          onKeyDown={onKey}
        />
        {now.length === 0 && <p class="plot-note" aria-hidden="true">{note}</p>}
      </div>
      <Legend {...props} hidden={hidden} setHidden={setHidden} handle={legend} />
      <span class="unseen" aria-live="polite">{said}</span>
    </>
  );
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

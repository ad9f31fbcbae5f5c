// What the server says: docs/studio.md.

export interface Run {
  id: string;
  name: string;
  task: string;
  state: "running" | "finished" | "stopped" | "failed" | "silent";
  reason: string;
  step: number;
  steps_total: number;
  started: number;
  updated: number; // by the clock of the machine that trains
  heard: number; // when its newest rows came, by the studio's clock
  trained_seconds: number;
  seconds_per_step: number | null;
  items_per_second: number | null;
  data_wait_share: number | null;
  seconds_left: number | null;
  skipped_total: number;
  rollbacks: number;
  warnings: number;
  last_warning: string;
  resumes: number;
  checkpoints_saved: number;
  parameters: Record<string, number>;
  threads: number;
  precision: string;
  device: string;
  data: string[];
  main_loss: string;
  losses: Record<string, number | null>;
  chance_levels: Record<string, number | null>;
  expected: Record<string, [number, number]>; // low and high, of the newest step
  code_use?: number | null;
  spark: (number | null)[];
  newest_sample: string;
}

export interface LoggedText {
  step: number;
  time: number;
  text: string;
}

export type Config = { [key: string]: unknown } | null;

export interface RunDetails extends Run {
  series: string[];
  warnings_list: LoggedText[];
  notes: LoggedText[];
  unreadable_rows: number;
  config: Config;
  checkpoints: { name: string; step: number; bytes: number }[];
  commands: string[]; // that started it and went on with it
}

export interface Curve {
  x: number[];
  y: number[];
  low?: number[];
  high?: number[];
  not_finite: number;
}

// What the recipe gave where it was measured.
export interface ExpectedCurve {
  x: number[]; // steps
  seconds: number[]; // when the run came there, or will
  low: number[];
  high: number[];
}

export interface Expected {
  data?: string;
  machine?: string;
  main?: string;
  label?: string; // of the weights that were validated
  training?: Record<string, ExpectedCurve>;
  validation?: Record<string, ExpectedCurve>;
}

// run -> series -> curve
export type Curves = Record<string, Record<string, Curve>>;

export interface CurveRequest {
  runs: string[];
  series: string[];
  axis: "step" | "time";
  from?: number;
  to?: number;
  points: number;
}

export interface SampleVersion {
  label: string;
  step: number;
  path: string;
  bytes: number;
}

export interface SampleItem {
  item: string;
  kind: "audio" | "picture" | "text";
  versions: SampleVersion[];
}

export interface EvaluationTable {
  name: string;
  head: string[];
  rows: string[][];
}

export type Rates = Record<string, { x: number[]; y: number[] }>;

export interface AbxResult {
  a: string;
  b: string;
  hits: number;
  trials: number;
  share: number;
  low: number;
  high: number;
  guessing: number;
}

export interface ScaleResult {
  version: string;
  count: number;
  mean: number;
  low: number;
  high: number;
}

export interface BlindResult {
  abx: AbxResult[];
  scale: ScaleResult[];
}

export interface BlindTest {
  id: string;
  time: number;
  kind: "abx" | "scale";
  title: string;
  listener: string;
  trials: unknown[];
  result: BlindResult;
}

export interface ToolOption {
  name: string;
  kind: "run" | "recording" | "picture" | "file" | "flag" | "number" | "choice" | "text" | "list" | "output"; // output: a file that is written, too; true or false
  type: string;
  help: string;
  default: unknown;
  limits: string;
  unit?: string;
  choices?: string[];
  tasks?: string[];
  names?: string[]; // that can stand for a path
}

export interface Tool {
  name: string;
  about: string;
  extensions: string[];
  helpers: string[]; // settings that begin with the newest run that fits
  options: ToolOption[];
}

export interface Job {
  id: string;
  tool: string;
  settings: Record<string, unknown>;
  state: "waiting" | "running" | "done" | "failed" | "cancelled";
  part: string;
  share: number;
  created: number;
  started: number;
  ended: number;
  command: string;
  lines: string[];
  results: string[];
}

// A file of a model: of its own, or a checkpoint of a run.
export interface ModelFile {
  path: string;
  task: string;
  step: number;
  bytes: number;
  run: string;
}

export interface KeptModel {
  kind: string;
  path: string;
  bytes: number;
}

export interface Status {
  version: string;
  folder: string;
  can_make: boolean;
}

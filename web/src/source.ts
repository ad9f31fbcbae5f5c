// Where the page gets its data: from the server that it came from, or from the report inside its own file.
import type {
  BlindResult,
  BlindTest,
  Curves,
  CurveRequest,
  EvaluationTable,
  Expected,
  Job,
  KeptModel,
  ModelFile,
  Rates,
  Run,
  RunDetails,
  SampleItem,
  Status,
  Tool,
} from "./types";

export interface Listener {
  runs(changed: Run[], ids: string[]): void;
  jobs(all: Job[]): void;
  connected(yes: boolean): void;
}

export interface Source {
  live: boolean;
  status(): Promise<Status>;
  run(id: string): Promise<RunDetails>;
  curves(request: CurveRequest): Promise<Curves>;
  samples(run: string): Promise<SampleItem[]>;
  tables(run: string): Promise<EvaluationTable[]>;
  rates(run: string): Promise<Rates>;
  expected(run: string): Promise<Expected>;
  url(path: string): string; // of a file that a sample names
  opusUrl(path: string, kbps: number): string | null;
  listen(listener: Listener): void;
}

export class RequestError extends Error {}

export async function request<T>(path: string, init?: RequestInit): Promise<T> {
  const response = await fetch(path, init);
  const text = await response.text();
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new RequestError(`${response.status}: ${text.slice(0, 200)}`);
  }
  if (!response.ok) {
    const error = (value as { error?: { message?: string } }).error;
    throw new RequestError(error?.message ?? `${response.status}`);
  }
  return value as T;
}

const post = <T>(path: string, body: unknown) =>
  request<T>(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

const encoded = (path: string) => path.split("/").map(encodeURIComponent).join("/");

class ServerSource implements Source {
  live = true;
  status = () => request<Status>("/api/status");
  run = (id: string) => request<RunDetails>(`/api/run?run=${encodeURIComponent(id)}`);
  curves = async (asked: CurveRequest) => (await post<{ curves: Curves }>("/api/curves", asked)).curves;
  samples = (run: string) => request<SampleItem[]>(`/api/samples?run=${encodeURIComponent(run)}`);
  tables = (run: string) => request<EvaluationTable[]>(`/api/tables?run=${encodeURIComponent(run)}`);
  rates = (run: string) => request<Rates>(`/api/learning-rates?run=${encodeURIComponent(run)}`);
  expected = (run: string) => request<Expected>(`/api/expected?run=${encodeURIComponent(run)}`);
  url = (path: string) => `/files/${encoded(path)}`;
  opusUrl = (path: string, kbps: number) => `/api/opus?path=${encodeURIComponent(path)}&kbps=${kbps}`;

  listen(listener: Listener) {
    const events = new EventSource("/api/events");
    events.addEventListener("open", () => listener.connected(true));
    events.addEventListener("error", () => listener.connected(false)); // the browser tries again by itself
    events.addEventListener("runs", (event) => {
      const news = JSON.parse((event as MessageEvent<string>).data) as { runs: Run[]; ids: string[] };
      listener.connected(true);
      listener.runs(news.runs, news.ids);
    });
    events.addEventListener("jobs", (event) => listener.jobs(JSON.parse((event as MessageEvent<string>).data) as Job[]));
  }
}

interface ReportData {
  version: string;
  made: number;
  runs: RunDetails[];
  curves: Curves;
  curves_by_time: Curves;
  samples: Record<string, SampleItem[]>;
  tables: Record<string, EvaluationTable[]>;
  learning_rates?: Record<string, Rates>;
  expected: Record<string, Expected>;
  files: Record<string, string>;
}

class ReportSource implements Source {
  live = false;
  constructor(private data: ReportData) {}
  status = async () => ({
    version: this.data.version,
    folder: `report of ${new Date(this.data.made * 1000).toLocaleString()}`,
    can_make: false,
  });
  run = async (id: string) => {
    const found = this.data.runs.find((run) => run.id === id);
    if (!found) throw new RequestError("there is no such run in this report");
    return found;
  };
  curves = async (asked: CurveRequest) => {
    const all = asked.axis === "time" ? this.data.curves_by_time : this.data.curves;
    const out: Curves = {};
    for (const run of asked.runs) {
      out[run] = {};
      for (const name of asked.series) if (all[run]?.[name]) out[run][name] = all[run][name];
    }
    return out;
  };
  samples = async (run: string) => this.data.samples[run] ?? [];
  tables = async (run: string) => this.data.tables[run] ?? [];
  rates = async (run: string) => this.data.learning_rates?.[run] ?? {};
  expected = async (run: string) => this.data.expected[run] ?? {};
  url = (path: string) => this.data.files[path] ?? "";
  opusUrl = () => null;
  listen(listener: Listener) {
    listener.runs(
      this.data.runs.map((run) => ({ ...run, state: run.state === "running" ? "silent" : run.state })),
      this.data.runs.map((run) => run.id),
    );
    listener.connected(true);
  }
}

function open(): Source {
  const inside = document.getElementById("report")?.textContent ?? "";
  return inside.trim() ? new ReportSource(JSON.parse(inside) as ReportData) : new ServerSource();
}

export const source = open();

// Only a server can do these.
export const api = {
  blind: () => request<{ tests: BlindTest[]; together: BlindResult }>("/api/blind"),
  addBlind: (test: unknown) => post<BlindTest>("/api/blind", test),
  tools: () => request<Tool[]>("/api/tools"),
  jobs: () => request<Job[]>("/api/jobs"),
  addJob: (tool: string, settings: Record<string, unknown>, extension: string) =>
    post<Job>("/api/jobs", { tool, settings, extension }),
  modelFiles: () => request<ModelFile[]>("/api/model-files"),
  kept: () => request<KeptModel[]>("/api/kept"),
  forgetKept: () => request<KeptModel[]>("/api/kept", { method: "DELETE" }),
  cancelJob: (id: string) => request<Job>(`/api/jobs/${id}`, { method: "DELETE" }),
  upload: (name: string, bytes: Blob) =>
    request<{ path: string }>(`/api/uploads?name=${encodeURIComponent(name)}`, { method: "POST", body: bytes }),
};

// The bytes behind an address; a report's are inside its own file, where fetch may not be allowed to go.
export async function bytesOf(url: string): Promise<ArrayBuffer> {
  if (url.startsWith("data:")) {
    const text = atob(url.slice(url.indexOf(",") + 1));
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
    return bytes.buffer;
  }
  const response = await fetch(url);
  if (!response.ok) throw new RequestError(`${url}: ${response.status}`);
  return response.arrayBuffer();
}

export async function textOf(url: string): Promise<string> {
  return new TextDecoder().decode(await bytesOf(url));
}

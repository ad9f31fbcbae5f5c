// What ten open pages cost a training beside them: node ten_clients.mjs PROGRAM [SECONDS] [CLIENTS]
// One training with one thread, of steps of a few milliseconds, goes on throughout on a core of its own; studio and clients
// have the others. In turn, nobody looks and ten clients do what pages do (events, curves every second, samples); the same
// seconds of either. What counts is the CPU time of a step: the clock of a machine that does other things says nothing.
// Prints a table and a verdict. Exits with 1 where a step took more (by 1 % or more, with 95 % certainty) or the studio's
// memory did not stay flat, with 2 where the interval is wider than 2 %: then nothing can be told.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { cpus, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Beside, tinyCodec } from "./beside_training.mjs";

const [given, seconds = "60", clients = "10"] = process.argv.slice(2);
const program = resolve(given); // commands run in other folders
const kTurns = 12, kSlower = 0.01, kWidest = 0.02, kMemoryKilobytes = 8000;
const kStudent = 2.201; // 97.5 % of Student's t with 11 degrees of freedom: of 12 turns
const work = mkdtempSync(join(tmpdir(), "melete-clients-"));
const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

mkdirSync(join(work, "runs"));
writeFileSync(join(work, "small.toml"), tinyCodec({ larger: true, validate_every: 0, sample_every: 0, save_every: 100000 }));

// User and system seconds of a process so far, and its resident kilobytes.
const cpu = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /, "").split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const resident = (pid) => Number(readFileSync(`/proc/${pid}/status`, "utf8").match(/VmRSS:\s+(\d+)/)[1]);
// Seconds that all cores of the machine have worked so far.
const machine = () => {
  const [user, nice, system, , , irq, soft] = readFileSync("/proc/stat", "utf8").match(/^cpu +(.*)/)[1].split(" ").map(Number);
  return (user + nice + system + irq + soft) / 100;
};
const rows = () => readFileSync(join(work, "runs/live/metrics.jsonl"), "utf8").trim().split("\n").map((line) => JSON.parse(line)).filter((row) => row.kind === "step");
const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length;
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

function ask(port, method, path, body) {
  return new Promise((resolve, reject) => {
    const request = http.request({ host: "127.0.0.1", port, method, path, agent: false }, (answer) => {
      let bytes = 0;
      answer.on("data", (data) => (bytes += data.length));
      answer.on("end", () => resolve(bytes));
    });
    request.on("error", reject);
    request.end(body);
  });
}

// Returns what ends it.
function client(port, count) {
  let going = true;
  const events = http.get({ host: "127.0.0.1", port, path: "/api/events", agent: false }, (answer) => answer.on("data", (data) => (count.events += data.length)));
  events.on("error", () => undefined);
  const curves = JSON.stringify({ runs: ["live"], series: ["loss/generator.loss", "loss/reconstruction", "gradient_norm/generator", "gradient_z/generator"], axis: "step", points: 700 });
  void (async () => {
    for (let turn = 0; going; ++turn) {
      count.bytes += await ask(port, "POST", "/api/curves", curves);
      if (turn % 5 === 0) count.bytes += (await ask(port, "GET", "/api/samples?run=live")) + (await ask(port, "GET", "/api/run?run=live"));
      count.requests += turn % 5 === 0 ? 3 : 1;
      await wait(1000);
    }
  })();
  return () => {
    going = false;
    events.destroy();
  };
}

// A stop from outside ends what was started, too.
const beside = new Beside(program, work);
const end = () => {
  beside.end();
  rmSync(work, { recursive: true, force: true });
};
for (const signal of ["SIGINT", "SIGTERM"])
  process.on(signal, () => {
    end();
    process.exit(130);
  });

// How much more the second list has than the first, pair by pair: the mean and its 95 % interval.
function excess(alone, watched) {
  const shares = alone.map((one, i) => watched[i] / one - 1), middle = mean(shares);
  const deviation = Math.sqrt(shares.reduce((sum, one) => sum + (one - middle) ** 2, 0) / (shares.length - 1));
  const half = (kStudent * deviation) / Math.sqrt(shares.length);
  return { mean: middle, low: middle - half, high: middle + half };
}
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const excessText = (one) => `${percent(one.mean)} more with clients (95 % interval ${percent(one.low)} to ${percent(one.high)})`;
const excessVerdict = (one) =>
  one.low >= kSlower ? "measurably slower" : one.high - one.low > kWidest ? "slower or not: this cannot be told, the interval is too wide" : `slower by ${percent(Math.max(0, one.high))} at most`;

// The training has the first core, everything else the rest; on a machine of one core they share it.
const pinned = cpus().length > 1 && spawnSync("taskset", ["--version"]).status === 0;
const on = (cores) => (pinned ? ["taskset", "-c", cores] : []);
const others_ = `1-${cpus().length - 1}`;
if (pinned) spawnSync("taskset", ["-apc", others_, String(process.pid)]);

let code = 0;
try {
  const made = spawnSync(program, ["data", "synth", "-o", "music", "--count", "4", "--seconds", "2", "--rate", "8000"], { cwd: work });
  if (made.status !== 0) throw new Error(String(made.stderr));
  const training = beside.startWith(on("0"), "train", "soundstream", "--config", "small.toml", "--data", "music", "--out", "runs/live", "--steps", "1000000", "--threads", "1");
  const studio = beside.startWith(on(others_), "studio", "runs", "--port", "0", "--watch_only");
  for (let i = 0; i < 600 && !studio.said.includes("http:"); ++i) await wait(100);
  const port = Number(studio.said.match(/:(\d+)\//)[1]);
  for (let i = 0; i < 1200; ++i) {
    try {
      if (rows().length > 10) break;
    } catch {} // not there yet
    await wait(100);
  }
  const sums = { alone: { steps: [], cpu: [], wall: [], studio: 0, seconds: 0 }, watched: { steps: [], cpu: [], wall: [], studio: 0, seconds: 0 } };
  const count = { events: 0, bytes: 0, requests: 0 };
  const memory = [];
  let others = 0, all = 0;
  for (let turn = 0; turn < kTurns; ++turn)
    for (const kind of turn % 2 ? ["watched", "alone"] : ["alone", "watched"]) {
      const ends = kind === "watched" ? Array.from({ length: Number(clients) }, () => client(port, count)) : [];
      await wait(1000); // until it has settled
      const now = () => ({ cpu: cpu(training.pid), studio: cpu(studio.pid), own: process.cpuUsage(), machine: machine(), clock: Date.now() / 1000 });
      const from = rows().length, before = now();
      for (let second = 0; second < Number(seconds) / kTurns; ++second) {
        await wait(1000);
        if (kind === "watched") memory.push(resident(studio.pid));
      }
      const after = now(), steps = rows().slice(from), sum = sums[kind];
      if (steps.length === 0) throw new Error("the training made no step in a turn; try more seconds");
      const own = (after.own.user + after.own.system - before.own.user - before.own.system) / 1e6;
      others += after.machine - before.machine - (after.cpu - before.cpu) - (after.studio - before.studio) - own;
      all += (after.clock - before.clock) * cpus().length;
      sum.cpu.push((after.cpu - before.cpu) / steps.length);
      sum.wall.push(median(steps.map((row) => row.seconds)));
      sum.steps.push(...steps.map((row) => row.seconds));
      sum.studio += after.studio - before.studio;
      sum.seconds += after.clock - before.clock;
      for (const over of ends) over();
      await wait(1000);
    }
  console.log(`${cpus()[0].model}, ${cpus().length} cores; ${clients} clients, ${seconds} s with and ${seconds} s without them, in ${kTurns} turns${pinned ? ", the training on a core of its own" : ""}; other work took ${percent(Math.max(0, others / all))} of the machine`);
  console.log("\t\tsteps\tCPU s/step\tmedian step s\tstudio's share of a core");
  for (const [kind, sum] of Object.entries(sums))
    console.log(`${kind.padEnd(8)}\t${sum.steps.length}\t${mean(sum.cpu).toFixed(5)}\t\t${median(sum.steps).toFixed(5)}\t\t${percent(sum.studio / sum.seconds)}`);
  const byClock = excess(sums.alone.wall, sums.watched.wall), byCpu = excess(sums.alone.cpu, sums.watched.cpu);
  console.log(`time of a training step: ${excessText(byClock)}`);
  console.log(`its CPU time: ${excessText(byCpu)}`);
  const half = memory.slice(memory.length / 2), growth = median(half.slice(half.length / 2)) - median(half.slice(0, half.length / 2));
  console.log(`asked: ${count.requests} requests, ${((count.bytes + count.events) / 1e6).toFixed(1)} MB; studio's memory ${(memory[0] / 1000).toFixed(1)} MB at first, ${(memory[memory.length - 1] / 1000).toFixed(1)} MB at last, ${(growth / 1000).toFixed(1)} MB more over the second half`);
  const flat = growth <= kMemoryKilobytes;
  code = byCpu.low >= kSlower || !flat ? 1 : byCpu.high - byCpu.low > kWidest ? 2 : 0;
  console.log(`${["GOOD", "FAILED", "CANNOT TELL"][code]}: by its CPU time the training step is ${excessVerdict(byCpu)}; the studio's memory ${flat ? "stays flat" : "grows"}`);
} catch (error) {
  console.error(error.message ?? error);
  console.error(beside.lastWords());
  code = 1;
} finally {
  end();
}
process.exit(code);

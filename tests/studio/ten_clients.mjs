// What ten open pages cost a training beside them: node ten_clients.mjs PROGRAM [SECONDS] [CLIENTS]
// One training with one thread, of steps of a few milliseconds, goes on throughout. In turn, nobody looks and ten clients do what pages do (events, curves
// every second, samples); the same seconds of either. Prints a table; exits with 1 where the studio's memory grew by more
// than a few megabytes over the second half.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";

const [program, seconds = "60", clients = "10"] = process.argv.slice(2);
const turns = 3, work = mkdtempSync(join(tmpdir(), "melete-clients-"));
const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

mkdirSync(join(work, "runs"));
writeFileSync(
  join(work, "small.toml"),
  `batch_size = 2
[data]
segment_seconds = 0.5
valid_fraction = 0
[model.codec]
sample_rate_hz = 8000
channels = 4
strides = [4, 8]
channel_multiples = [1, 2]
dim = 8
attention = false
quantizer = { quantizers = 3, codebook_size = 16 }
[model]
discriminator_scales = [1]
multi_scale = { channels = 2, layers = 1, groups = [2] }
stft = { channels = 2, channel_multiples = [1], frequency_strides = [2], time_strides = [2] }
[train]
validate_every = 500
sample_every = 1000
save_every = 1000
`,
);

// User and system seconds of a process so far, and its resident kilobytes.
const cpu = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /, "").split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const resident = (pid) => Number(readFileSync(`/proc/${pid}/status`, "utf8").match(/VmRSS:\s+(\d+)/)[1]);
const rows = () => readFileSync(join(work, "runs/live/metrics.jsonl"), "utf8").trim().split("\n").map((line) => JSON.parse(line)).filter((row) => row.kind === "step");
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

const children = [];
const start = (...words) => {
  const child = spawn(program, words, { cwd: work, stdio: ["ignore", "pipe", "pipe"] });
  child.said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (child.said = (child.said + data).slice(-4000)));
  children.push(child);
  return child;
};

// A stop from outside ends what was started, too.
const end = () => {
  for (const child of children) child.kill("SIGKILL");
  rmSync(work, { recursive: true, force: true });
};
for (const signal of ["SIGINT", "SIGTERM"])
  process.on(signal, () => {
    end();
    process.exit(130);
  });

let failed = false;
try {
  const made = spawnSync(program, ["data", "synth", "-o", "music", "--count", "4", "--seconds", "2", "--rate", "8000"], { cwd: work });
  if (made.status !== 0) throw new Error(String(made.stderr));
  const training = start("train", "soundstream", "--config", "small.toml", "--data", "music", "--out", "runs/live", "--steps", "1000000", "--threads", "1");
  const studio = start("studio", "runs", "--port", "0", "--watch_only");
  for (let i = 0; i < 600 && !studio.said.includes("http:"); ++i) await wait(100);
  const port = Number(studio.said.match(/:(\d+)\//)[1]);
  for (let i = 0; i < 1200; ++i) {
    try {
      if (rows().length > 10) break;
    } catch {} // not there yet
    await wait(100);
  }
  const sums = { alone: { steps: [], cpu: 0, studio: 0, wall: 0, count: 0 }, watched: { steps: [], cpu: 0, studio: 0, wall: 0, count: 0 } };
  const count = { events: 0, bytes: 0, requests: 0 };
  const memory = [];
  for (let turn = 0; turn < turns; ++turn)
    for (const kind of ["alone", "watched"]) {
      const ends = kind === "watched" ? Array.from({ length: Number(clients) }, () => client(port, count)) : [];
      await wait(1000); // until it has settled
      const before = { rows: rows().length, cpu: cpu(training.pid), studio: cpu(studio.pid), clock: Date.now() };
      for (let second = 0; second < Number(seconds) / turns; ++second) {
        await wait(1000);
        if (kind === "watched") memory.push(resident(studio.pid));
      }
      const sum = sums[kind], now = rows();
      sum.wall += (Date.now() - before.clock) / 1000;
      sum.cpu += cpu(training.pid) - before.cpu;
      sum.studio += cpu(studio.pid) - before.studio;
      sum.count += now.length - before.rows;
      sum.steps.push(...now.slice(before.rows).map((row) => row.seconds));
      for (const end of ends) end();
      await wait(1000);
    }
  const half = memory.slice(memory.length / 2), growth = median(half.slice(half.length / 2)) - median(half.slice(0, half.length / 2));
  console.log(`${cpus()[0].model}, ${cpus().length} cores; ${clients} clients, ${seconds} s with and ${seconds} s without them, in ${turns} turns`);
  console.log("\t\tsteps\tCPU s/step\tmedian step s\tstudio's share of a core");
  for (const [kind, sum] of Object.entries(sums))
    console.log(`${kind.padEnd(8)}\t${sum.count}\t${(sum.cpu / sum.count).toFixed(4)}\t\t${median(sum.steps).toFixed(4)}\t\t${((100 * sum.studio) / sum.wall).toFixed(1)} %`);
  const slower = sums.watched.cpu / sums.watched.count / (sums.alone.cpu / sums.alone.count) - 1;
  console.log(`CPU time of a training step: ${(100 * slower).toFixed(1)} % more with clients`);
  console.log(`asked: ${count.requests} requests, ${((count.bytes + count.events) / 1e6).toFixed(1)} MB; studio's memory ${(memory[0] / 1000).toFixed(1)} MB at first, ${(memory[memory.length - 1] / 1000).toFixed(1)} MB at last`);
  if (growth > 8000) throw new Error(`the studio's memory grew by ${growth} kB over the second half`);
} catch (error) {
  console.error(error.message ?? error);
  for (const child of children) console.error(child.said.slice(-500));
  failed = true;
} finally {
  end();
}
process.exit(failed ? 1 : 0);

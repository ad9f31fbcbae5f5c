// What tests of the studio need beside them: a codec so small that a step takes milliseconds, and programs that end with the
// test.
import { spawn } from "node:child_process";

// The recipe of a codec of a few hundred weights. `larger`: twice as wide.
export const tinyCodec = ({ larger = false, validate_every, sample_every, save_every }) => `batch_size = 2
[data]
segment_seconds = 0.5
valid_fraction = 0
[model.codec]
sample_rate_hz = 8000
channels = ${larger ? 4 : 2}
strides = [4, 8]
channel_multiples = [1, 2]
dim = ${larger ? 8 : 4}
attention = false
quantizer = { quantizers = 3, codebook_size = ${larger ? 16 : 8} }
[model]
discriminator_scales = [1]
multi_scale = { channels = 2, layers = 1, groups = [2] }
stft = { channels = 2, channel_multiples = [1], frequency_strides = [2], time_strides = [2] }
[generator.schedule]
kind = "cosine"
warmup_steps = 20
[train]
validate_every = ${validate_every}
sample_every = ${sample_every}
save_every = ${save_every}
`;

// Programs that go on beside a test; what each said last is in `said`, its exit code in `code` once it is over.
export class Beside {
  constructor(program, folder) {
    this.program = program;
    this.folder = folder;
    this.children = [];
  }
  start(...words) {
    return this.startWith([], ...words);
  }
  // prefix: words of a program that starts it, such as taskset's.
  startWith(prefix, ...words) {
    const [first, ...rest] = [...prefix, this.program, ...words];
    const child = spawn(first, rest, { cwd: this.folder, stdio: ["ignore", "pipe", "pipe"] });
    child.said = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (child.said = (child.said + data).slice(-4000)));
    child.on("exit", (code) => (child.code = code));
    this.children.push(child);
    return child;
  }
  lastWords() {
    return this.children.map((child) => child.said.slice(-500)).join("\n");
  }
  end() {
    for (const child of this.children) if (child.code === undefined) child.kill("SIGKILL");
  }
}

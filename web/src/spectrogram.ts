// The spectrum of a recording over time as a picture: windows of 1024 samples, bands on a mel scale, 80 dB of range.
import { heat } from "./colours";

const kWindow = 1024, kBands = 96, kRange = 80, kColumns = 640;

// In place, by powers of two.
function fft(re: Float32Array, im: Float32Array) {
  const n = re.length;
  for (let i = 1, j = 0; i < n; ++i) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      [re[i], re[j]] = [re[j], re[i]];
      [im[i], im[j]] = [im[j], im[i]];
    }
  }
  for (let size = 2; size <= n; size <<= 1) {
    const angle = (-2 * Math.PI) / size;
    for (let start = 0; start < n; start += size)
      for (let k = 0; k < size / 2; ++k) {
        const c = Math.cos(angle * k), s = Math.sin(angle * k);
        const a = start + k, b = a + size / 2;
        const tr = re[b] * c - im[b] * s, ti = re[b] * s + im[b] * c;
        re[b] = re[a] - tr;
        im[b] = im[a] - ti;
        re[a] += tr;
        im[a] += ti;
      }
  }
}

const mel = (hz: number) => 2595 * Math.log10(1 + hz / 700);
const hertz = (value: number) => 700 * (10 ** (value / 2595) - 1);

// values [columns][bands] in dB
export function spectrogram(buffer: AudioBuffer, seconds: number, rateHz: number): Float32Array[] {
  const samples = buffer.getChannelData(0), rate = buffer.sampleRate;
  const shownHz = Math.min(rateHz, rate) / 2;
  const columns = Math.min(kColumns, Math.max(32, Math.floor((seconds * rate) / 160)));
  const window = Float32Array.from({ length: kWindow }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / kWindow));
  const edges = Array.from({ length: kBands + 1 }, (_, i) => (hertz((mel(shownHz) * i) / kBands) / rate) * kWindow);
  const re = new Float32Array(kWindow), im = new Float32Array(kWindow);
  const out: Float32Array[] = [];
  for (let column = 0; column < columns; ++column) {
    const centre = Math.floor(((column + 0.5) / columns) * seconds * rate);
    im.fill(0);
    for (let i = 0; i < kWindow; ++i) re[i] = (samples[centre - kWindow / 2 + i] ?? 0) * window[i];
    fft(re, im);
    const bands = new Float32Array(kBands);
    for (let band = 0; band < kBands; ++band) {
      const from = Math.floor(edges[band]), to = Math.max(from + 1, Math.ceil(edges[band + 1]));
      let power = 0;
      for (let bin = from; bin < to && bin <= kWindow / 2; ++bin) power = Math.max(power, re[bin] ** 2 + im[bin] ** 2);
      bands[band] = 10 * Math.log10(power + 1e-10);
    }
    out.push(bands);
  }
  return out;
}

// `loudest`: of all that are shown together, so that they can be compared.
export function draw(canvas: HTMLCanvasElement, values: Float32Array[], loudest: number) {
  canvas.width = values.length;
  canvas.height = kBands;
  const context = canvas.getContext("2d")!;
  const picture = context.createImageData(values.length, kBands);
  values.forEach((bands, column) => {
    for (let band = 0; band < kBands; ++band) {
      const [r, g, b] = heat((bands[band] - loudest + kRange) / kRange);
      const at = ((kBands - 1 - band) * values.length + column) * 4;
      picture.data[at] = r;
      picture.data[at + 1] = g;
      picture.data[at + 2] = b;
      picture.data[at + 3] = 255;
    }
  });
  context.putImageData(picture, 0, 0);
}

export const loudestOf = (values: Float32Array[]) => values.reduce((most, bands) => bands.reduce((a, b) => Math.max(a, b), most), -100);

#include "cli/import_frozen_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cli/arguments.h"
#include "core/base/error.h"
#include "io/foreign_file.h"
#include "pretrained/import.h"

namespace melete {

namespace {

// What every one of these commands takes.
struct ImportWords {
  std::string from, out;

  Arguments arguments(const std::string& system, const std::string& about) {
    Arguments result("import " + system, about);
    result.word("file", from,
                "weights as downloaded: safetensors, .bin, .pt, .th, or a folder with config.json");
    result.option("out", out, "file to write, .safetensors");
    result.alias("o", "out");
    return result;
  }
  bool parse(Arguments& arguments, const std::vector<std::string>& args) {
    if (!arguments.parse(args)) return false;
    if (!out.ends_with(".safetensors"))
      throw UsageError("--out is missing: a file to write that ends with .safetensors");
    return true;
  }
  nlohmann::ordered_json about() const {
    return {{"imported_from", std::filesystem::path(from).filename().string()}};
  }
};

void report(const std::string& out, const SemanticTokenizer& tokenizer) {
  fmt::print("{}: semantic tokenizer `{}`, {} tokens, {:g} a second at {} Hz, identity {}\n", out,
             tokenizer.kind(), tokenizer.codebook_size(), tokenizer.tokens_per_second(), tokenizer.rate_hz(),
             tokenizer.identity());
}

int import_hubert_command(const std::vector<std::string>& args) {
  ImportWords words;
  std::string kmeans;
  int64_t layer = 0;
  Arguments arguments = words.arguments("hubert", "HuBERT, from Hugging Face or fairseq");
  arguments.option("kmeans", kmeans, "k-means of scikit-learn (joblib): makes it a semantic tokenizer");
  arguments
      .option("layer", layer, "whose state the k-means was fitted to (9 for the published one); 0: keep all")
      .at_least(0);
  arguments.example(
      "import hubert hubert_base_ls960.pt --kmeans hubert_base_ls960_L9_km500.bin --layer 9 -o "
      "h.safetensors");
  if (!words.parse(arguments, args)) return 0;
  if (!kmeans.empty() && layer == 0) throw UsageError("--kmeans needs --layer: whose state it was fitted to");
  const Hubert model = import_hubert(words.from, layer);
  if (kmeans.empty()) {
    save_frozen(words.out, frozen(model), words.about());
    fmt::print(
        "{}: HuBERT of {} layers; fit tokens with `melete train kmeans --features hubert:LAYER --hubert "
        "{}`\n",
        words.out, model->config().layers, words.out);
    return 0;
  }
  const KmeansTokenizer tokenizer(std::make_unique<HubertFeatures>(model, layer),
                                  Centroids{read_sklearn_centroids(kmeans), {}, {}});
  save_frozen(words.out, frozen(tokenizer), words.about());
  report(words.out, tokenizer);
  return 0;
}

int import_encodec_command(const std::vector<std::string>& args) {
  ImportWords words;
  double bandwidth = 6;
  Arguments arguments = words.arguments("encodec", "EnCodec of 24 kHz, from Meta or Hugging Face");
  arguments.option("bandwidth", bandwidth, "decides how many quantizers are used")
      .at_least(0.1)
      .unit("kbit/s");
  arguments.example("import encodec encodec_24khz-d7cc33bc.th --bandwidth 6 -o encodec.safetensors");
  if (!words.parse(arguments, args)) return 0;
  const Encodec model = import_encodec(words.from, bandwidth);
  save_frozen(words.out, frozen(model), words.about());
  const EncodecCodec codec(model);
  fmt::print("{}: EnCodec at {} Hz, {} x {} codes, {:g} frames a second, identity {}\n", words.out,
             codec.rate_hz(), codec.quantizers(), codec.codebook_size(), codec.frames_per_second(),
             codec.identity());
  return 0;
}

int import_t5_command(const std::vector<std::string>& args) {
  ImportWords words;
  std::string pieces;
  int64_t max_tokens = 256;
  Arguments arguments =
      words.arguments("t5", "the encoder of T5 (first version, 1.1 or flan), from Hugging Face");
  arguments.option("spiece", pieces,
                   "its SentencePiece model; spiece.model beside the weights when not given");
  arguments.option("max_tokens", max_tokens, "longer texts are cut").at_least(1).unit("tokens");
  arguments.example("import t5 t5-v1_1-base -o t5.safetensors");
  if (!words.parse(arguments, args)) return 0;
  if (pieces.empty()) {
    const std::filesystem::path from = words.from;
    pieces = ((std::filesystem::is_directory(from) ? from : from.parent_path()) / "spiece.model").string();
  }
  const auto encoder = import_t5(words.from, pieces, max_tokens);
  save_frozen(words.out, frozen(*encoder), words.about());
  fmt::print("{}: T5 encoder, {} wide, {} layers, {} pieces, identity {}\n", words.out, encoder->dim(),
             encoder->model()->config().layers, encoder->tokenizer().vocabulary(), encoder->identity());
  return 0;
}

int import_vq_wav2vec_command(const std::vector<std::string>& args) {
  ImportWords words;
  Arguments arguments =
      words.arguments("vq-wav2vec", "vq-wav2vec of fairseq, k-means or gumbel: a semantic tokenizer");
  int64_t rate_hz = 0;
  arguments
      .option("target_sample_hz", rate_hz,
              "rate of the sound that it is given; 0: the 16000 that it was trained with (audiolm-pytorch's "
              "default is 24000)")
      .at_least(0)
      .unit("Hz");
  arguments.example("import vq-wav2vec vq-wav2vec_kmeans.pt -o semantic.safetensors");
  if (!words.parse(arguments, args)) return 0;
  const auto tokenizer = import_vq_wav2vec(words.from, rate_hz);
  save_frozen(words.out, frozen(*tokenizer), words.about());
  report(words.out, *tokenizer);
  return 0;
}

int import_vocos_command(const std::vector<std::string>& args) {
  // What the published model on EnCodec's frames was trained with, in the order of its conditions.
  static const std::vector<double> kBandwidths = {1.5, 3, 6, 12};
  ImportWords words;
  std::string encodec;
  double bandwidth = 6;
  Arguments arguments = words.arguments("vocos", "Vocos, on mel frames or on those of EnCodec");
  arguments.option("encodec", encodec, "EnCodec of 24 kHz, for the Vocos on its frames");
  arguments.option("bandwidth", bandwidth, "of EnCodec's codes: 1.5, 3, 6 or 12").unit("kbit/s");
  arguments.example("import vocos vocos-mel-24khz/pytorch_model.bin -o vocos.safetensors");
  arguments.example(
      "import vocos vocos-encodec-24khz/pytorch_model.bin --encodec encodec_24khz-d7cc33bc.th --bandwidth 6 "
      "-o frames.safetensors");
  if (!words.parse(arguments, args)) return 0;
  const Vocos vocoder = import_vocos(words.from);
  if (vocoder->config().codebook_rows == 0) {
    if (!encodec.empty()) throw UsageError("this Vocos takes mel frames; leave --encodec out");
    MelFramesConfig mel;  // its defaults are the published model's
    mel.mels = vocoder->config().input_dim;
    mel.n_fft = mel.window = vocoder->config().n_fft;
    mel.hop = vocoder->config().hop;
    const MelVocos features(mel, vocoder);
    save_frozen(words.out, frozen(vocoder, mel), words.about());
    fmt::print("{}: Vocos on {} mel bands of {} Hz, {:g} frames a second, identity {}\n", words.out,
               features.dim(), features.rate_hz(), features.frames_per_second(), features.identity());
    return 0;
  }
  if (encodec.empty()) throw UsageError("this Vocos takes the frames of EnCodec; give --encodec FILE");
  const auto place = std::find(kBandwidths.begin(), kBandwidths.end(), bandwidth);
  if (place == kBandwidths.end())
    throw UsageError(fmt::format("--bandwidth: expected 1.5, 3, 6 or 12, got {:g}", bandwidth));
  const Encodec codec = import_encodec(encodec, bandwidth);
  const auto condition = static_cast<int64_t>(place - kBandwidths.begin());
  const EncodecVocos features(codec, vocoder, condition);
  save_frozen(words.out, frozen(codec, vocoder, condition), words.about());
  fmt::print("{}: Vocos on EnCodec's frames of {} values, {:g} a second at {} Hz, identity {}\n", words.out,
             features.dim(), features.frames_per_second(), features.rate_hz(), features.identity());
  return 0;
}

}  // namespace

const std::vector<std::string>& frozen_systems() {
  static const std::vector<std::string> names = {"hubert", "encodec", "t5", "vq-wav2vec", "vocos"};
  return names;
}

int import_frozen_command(const std::string& system, const std::vector<std::string>& args) {
  if (system == "hubert") return import_hubert_command(args);
  if (system == "encodec") return import_encodec_command(args);
  if (system == "t5") return import_t5_command(args);
  if (system == "vocos") return import_vocos_command(args);
  if (system == "vq-wav2vec") return import_vq_wav2vec_command(args);
  throw UsageError(
      fmt::format("`import {}` is not known; there is: {}", system, fmt::join(frozen_systems(), ", ")));
}

}  // namespace melete

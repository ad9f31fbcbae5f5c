// MusicLM from a sentence to a wave.
#include "core/base/error.h"
#include "data/text_tokenizer.h"
#include "musiclm.h"
#include "systems/audiolm/foreign_names.h"
#include "systems/musiclm/generate.h"
#include "systems/musiclm/mulan_embedding.h"
#include "systems/soundstream/codec.h"

namespace melete::golden::musiclm_generate_cases {

using nlohmann::ordered_json;
using namespace musiclm;

namespace {

// Uniform draws of one piece: stage by stage, as they were made.
class PieceDraws : public SeededDraws {
 public:
  PieceDraws(const Case& c, int64_t piece) : SeededDraws(0) {
    for (const char* stage : {"semantic", "coarse", "fine"}) {
      const std::string key = fmt::format("rand.sample{}.{}.gumbel_uniform", piece, stage);
      if (!c.has(key)) continue;
      for (const at::Tensor& step : c.get(key).unbind(0)) steps_.push_back(step);
    }
  }
  at::Tensor uniform(std::string_view what, at::IntArrayRef shape) override {
    require(!steps_.empty(), "[golden] no draw left for {}", what);
    const at::Tensor next = steps_.front();
    steps_.pop_front();
    return next.reshape(shape);
  }

 private:
  std::deque<at::Tensor> steps_;
};

// Where there is no list of merges: the ids of the one text that the case has.
class RecordedText : public TextTokenizer {
 public:
  explicit RecordedText(const at::Tensor& ids)
      : ids_(ids.data_ptr<int64_t>(), ids.data_ptr<int64_t>() + ids.numel()) {}
  std::string kind() const override { return "recorded"; }
  int64_t vocabulary() const override { return 0; }
  const std::string& identity() const override { return identity_; }
  std::vector<int64_t> pieces(std::string_view) const override { return ids_; }
  std::string text(const std::vector<int64_t>&) const override { return {}; }

 private:
  std::vector<int64_t> ids_;
  std::string identity_ = "recorded";
};

const std::string kConditioner = "mulan_embed_quantizer.", kAudioLm = "audio_lm.";

template <class Model, class Config>
Model load_stage(const Case& c, const char* name, Config config) {
  const TensorMap weights = below(c.weights, fmt::format("{}{}.transformer.", kAudioLm, name));
  Model model(config(c.config.at(name), text_dim(weights)));
  audiolm_pytorch::load_stage(*model, weights);
  model->eval();
  return model;
}

ordered_json value_of(const Case& c, const char* input) {
  const auto& inputs = c.json.at("inputs");
  return inputs.contains(input) ? inputs[input].at("value") : ordered_json();
}

// What goes through to AudioLM; its own defaults where nothing is said. What masks fine codes of frames that
// have no coarse ones changes nothing here: such frames are never decoded.
ordered_json audiolm_arguments(const Case& c) {
  ordered_json given = value_of(c, "audio_lm_kwargs");
  if (given.is_null()) given = ordered_json::object();
  expect_only(given,
              {"max_length", "batch_size", "return_coarse_generated_wave", "mask_out_generated_fine_tokens"});
  return given;
}

AudioLm load_audiolm(const Case& c) {
  AudioLm model;
  model.semantic = load_stage<SemanticTransformer>(c, "semantic", audiolm_pytorch::semantic_config);
  model.coarse = load_stage<CoarseTransformer>(c, "coarse", audiolm_pytorch::coarse_config);
  if (!audiolm_arguments(c).value("return_coarse_generated_wave", false))
    model.fine = load_stage<FineTransformer>(c, "fine", audiolm_pytorch::fine_config);
  SoundStreamGan gan(audiolm_pytorch::soundstream_config(c.config.at("codec")));
  TensorMap codec = below(c.weights, kAudioLm + "coarse.codec.");
  if (codec.empty()) codec = below(c.weights, kAudioLm + "fine.codec.");
  audiolm_pytorch::load_codec_weights(gan, codec);
  model.codec = std::make_shared<SoundStreamCodec>(gan->codec);
  return model;
}

MusicRequest request_of(const Case& c) {
  MusicRequest request;
  request.text = value_of(c, "text").get<std::string>();
  request.one_table_for_all = true;
  const ordered_json given = audiolm_arguments(c);
  AudioLmRequest& inner = request.audiolm;
  inner.semantic_length = given.value("max_length", int64_t{2048});
  inner.coarse_frames = value_of(c, "coarse_max_time_steps").is_null()
                            ? 512
                            : value_of(c, "coarse_max_time_steps").get<int64_t>();
  inner.unique_consecutive = c.config.value("unique_consecutive", true);
  inner.as_audiolm_pytorch = true;
  if (const ordered_json temperature = value_of(c, "temperature"); !temperature.is_null())
    for (SamplingConfig* stage : {&inner.semantic, &inner.coarse, &inner.fine})
      stage->temperature = temperature.get<double>();
  return request;
}

void check_codes(Checker& check, const std::string& name, const at::Tensor& got, const at::Tensor& want) {
  check.close(name, at::constant_pad_nd(got, {0, 0, 0, want.size(1) - got.size(1)}, kPadding), want);
}

void check_musiclm(const Case& c, Checker& check) {
  const at::NoGradGuard no_grad;
  std::shared_ptr<const TextTokenizer> tokenizer = clip_tokenizer(c);
  if (!tokenizer) tokenizer = std::make_shared<RecordedText>(c.out("texts"));
  MusicLm model;
  model.audiolm = load_audiolm(c);
  MulanConfig config = musiclm_pytorch::mulan_config(c.config.at("audio"), c.config.at("text"),
                                                     c.config.value("mulan", ordered_json::object()));
  // Upstream does not resample what it ranks.
  config.sample_rate_hz = model.audiolm.codec->rate_hz();
  Mulan mulan(config);
  musiclm_pytorch::load(*mulan, below(c.weights, kConditioner + "mulan."));
  model.condition = EmbedQuantizer(musiclm_pytorch::quantizer_config(c.config.at("quantizer"), config.dim));
  musiclm_pytorch::load(*model.condition, below(c.weights, kConditioner), {}, {"mulan."});
  model.condition->eval();
  model.embedding = std::make_shared<MulanEmbedding>(mulan, tokenizer, EmbeddingOptions{0});

  MusicRequest request = request_of(c);
  const TokenizedTexts words = tokenize(*tokenizer, {request.text}, config.text.window);
  check.close("texts", words.input.ids, c.out("texts"));
  const at::Tensor goal = target(model, request);
  check.close("text_latents", goal, c.out("text_latents"));

  const auto samples = value_of(c, "num_samples").is_null() ? 1 : value_of(c, "num_samples").get<int64_t>();
  std::vector<at::Tensor> waves;
  for (int64_t piece = 0; piece < samples; ++piece) {
    PieceDraws draws(c, piece);
    request.audiolm.draws = &draws;
    const MusicResult result = generate(model, request);
    if (piece == 0) {
      check.close("rq_indices", result.codes, c.out("rq_indices"));
      check.close("text_embeds",
                  model.condition->condition(result.codes, model.condition->config().stages.front()),
                  c.out("text_embeds"));
    }
    const std::string prefix = fmt::format("sample{}.", piece);
    check.close(prefix + "semantic_ids", result.audiolm.semantic, c.out(prefix + "semantic_ids"));
    check_codes(check, prefix + "coarse_ids", result.audiolm.coarse, c.out(prefix + "coarse_ids"));
    if (c.has("out." + prefix + "acoustic_ids"))
      check_codes(check, prefix + "acoustic_ids", result.audiolm.acoustic, c.out(prefix + "acoustic_ids"));
    waves.push_back(result.audiolm.waves.front());
    check.close(prefix + "wave", waves.back().unsqueeze(0), c.out(prefix + "wave"));
  }
  const at::Tensor found = scores(*model.embedding, waves, model.audiolm.codec->rate_hz(), goal);
  if (c.has("out.similarities")) check.close("similarities", found, c.out("similarities"));
  const auto best = static_cast<size_t>(found.argmax().item<int64_t>());
  check.close("returned", waves[best].unsqueeze(0), c.out("returned"));
}

const bool registered = register_case("musiclm", "MusicLM", check_musiclm);

}  // namespace

}  // namespace melete::golden::musiclm_generate_cases

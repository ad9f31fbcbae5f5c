// `melete generate audiolm`, and each of its stages by itself.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/schema.h"
#include "core/base/error.h"
#include "io/audio_tensor.h"
#include "io/base/atomic_file.h"
#include "io/base/audio_file.h"
#include "roles/open.h"
#include "systems/audiolm/load.h"
#include "systems/audiolm/system.h"

namespace melete {

namespace {

struct Prompt {
  std::string path;
  double seconds = 0;  // taken of it; 0: all

  at::Tensor read(int64_t rate_hz) const { return read_mono(path, rate_hz, seconds); }  // [samples]
};
void describe_prompt(Schema& s, Prompt& c) {
  s.option("prompt", c.path, "recording to go on from, at any rate");
  s.option("prompt_seconds", c.seconds, "take only this much of it; 0: all").at_least(0).unit("s");
}

// One setting for every stage, unless a stage's own says otherwise.
struct SamplingOfAll {
  SamplingConfig all, semantic, coarse, fine;

  void spread(const std::function<bool(const std::string&)>& given) {
    const std::pair<const char*, SamplingConfig*> stages[] = {
        {"sampling.semantic.", &semantic}, {"sampling.coarse.", &coarse}, {"sampling.fine.", &fine}};
    for (const auto& [prefix, stage] : stages) {
      const auto take = [&](const char* name, auto SamplingConfig::*field) {
        if (given(name) && !given(std::string(prefix) + name)) stage->*field = all.*field;
      };
      take("temperature", &SamplingConfig::temperature);
      take("top_k", &SamplingConfig::top_k);
      take("top_p", &SamplingConfig::top_p);
      take("filter", &SamplingConfig::filter);
      take("guidance", &SamplingConfig::guidance);
    }
  }
};
void describe_sampling(Schema& s, SamplingOfAll& c) {
  describe(s, c.all);
  s.section("sampling.semantic", c.semantic, "of the semantic stage alone");
  s.section("sampling.coarse", c.coarse, "of the coarse stage alone");
  s.section("sampling.fine", c.fine, "of the fine stage alone");
}

void say_wave(const GenerationRun& run, const std::string& path, const at::Tensor& wave, int64_t rate_hz) {
  if (wave.numel() == 0)
    return run.say(fmt::format("{}: the model ended at once; nothing was written", path));
  write_wave(path, wave, rate_hz);
  run.say(fmt::format("{}  {:.2f} s at {} Hz", path,
                      static_cast<double>(wave.numel()) / static_cast<double>(rate_hz), rate_hz));
}

class AudioLmGeneration final : public Generation {
 public:
  AudioLmGeneration() { request_.may_end = false; }

  void describe(Schema& s) override {
    s.option("from", from_, "folder of runs: finds the parts that are not given");
    s.option("semantic", paths_.semantic, "run or checkpoint of the semantic stage");
    s.option("coarse", paths_.coarse, "run or checkpoint of the coarse stage");
    s.option("fine", paths_.fine, "run or checkpoint of the fine stage; without one, sound is coarse");
    s.option("tokenizer", paths_.tokenizer, "semantic tokenizer; default: the one they were trained with");
    s.option("codec", paths_.codec, "codec; default: the one they were trained with");
    s.option("text_encoder", paths_.text, "text encoder; default: the one they were trained with");
    describe_prompt(s, prompt_);
    s.option("text", text_, "what to make, for models that are conditioned on text");
    s.option("seconds", request_.seconds, "how much new sound").at_least(0.01).unit("s");
    s.option("batch", request_.batch, "how many different ones").at_least(1);
    s.option("until_end", request_.may_end,
             "stop where a model says the sound ends: for models trained on whole recordings");
    s.option("weights", weights_,
             "ema: averaged, where there is an average; online: as the optimiser left them")
        .one_of({"ema", "online"});
    s.option("precision", precision_, "of the weights; bf16 and int8: faster, a little less exact")
        .one_of(weight_precisions());
    describe_sampling(s, sampling_);
  }

  std::vector<std::string> examples() const override {
    return {"audiolm --from runs --prompt in.wav --seconds 4 -o out.wav",
            "audiolm --semantic runs/semantic --coarse runs/coarse --fine runs/fine -o out.flac"};
  }

  void run(const GenerationRun& run) override {
    sampling_.spread(run.given);
    if (!from_.empty()) find_parts(from_, paths_);
    AudioLm model = load_audiolm(paths_, weights_named(weights_), run.device);
    if (!text_.empty() && !model.conditioned())
      throw UsageError("these models were trained without text; leave out --text");
    AudioLmRequest request = request_;
    request.weights = weight_storage(precision_);
    if (!prompt_.path.empty()) {
      request.prompt_rate_hz =
          probe_audio(prompt_.path).rate_hz;  // tokenizer and codec take their own from it
      request.prompt = prompt_.read(request.prompt_rate_hz);
    }
    if (!text_.empty()) request.texts = {text_};
    request.semantic = sampling_.semantic;
    request.coarse = sampling_.coarse;
    request.fine = sampling_.fine;
    request.seed = run.seed;
    request.progress = run.progress;
    const AudioLmResult result = generate(model, request);
    for (int64_t row = 0; row < request.batch; ++row)
      say_wave(run, numbered_path(run.out, row, request.batch), result.waves[static_cast<size_t>(row)],
               model.codec->rate_hz());
  }

 private:
  std::string from_, text_, precision_ = "fp32", weights_ = "ema";
  AudioLmPaths paths_;
  Prompt prompt_;
  AudioLmRequest request_;
  SamplingOfAll sampling_;
};

// What the stages have in common when they are asked one by one: the run, and the models that it was trained
// with.
class StageGeneration : public Generation {
 public:
  explicit StageGeneration(std::string stage) : stage_(std::move(stage)) {}

  void describe(Schema& s) override {
    s.option("from", from_, fmt::format("run or checkpoint of the {} stage", stage_));
    if (stage_ != "fine")
      s.option("tokenizer", tokenizer_, "semantic tokenizer; default: the one it was trained with");
    if (stage_ != "semantic") s.option("codec", codec_, "codec; default: the one it was trained with");
    describe_prompt(s, prompt_);
    if (stage_ != "fine") s.option("seconds", seconds_, "how much is new").at_least(0.01).unit("s");
    s.option("text", text_, "what to make, for models that are conditioned on text");
    s.option("text_encoder", text_encoder_, "text encoder; default: the one it was trained with");
    s.option("weights", weights_,
             "ema: averaged, where there is an average; online: as the optimiser left them")
        .one_of({"ema", "online"});
    melete::describe(s, sampling_);
  }

  std::vector<std::string> examples() const override {
    return {fmt::format("{} --from runs/{} --prompt in.wav -o {}", stage_, stage_,
                        stage_ == "semantic" ? "tokens.txt" : "out.wav")};
  }
  std::vector<std::string> extensions() const override {
    return stage_ == "semantic" ? std::vector<std::string>{".txt"} : Generation::extensions();
  }

  void run(const GenerationRun& run) override {
    if (from_.empty()) throw UsageError(fmt::format("expected --from RUN of the {} stage, got none", stage_));
    RowDraws draws(run.seed, stage_, 1);
    StageRequest request;
    request.sampling = sampling_;
    request.draws = &draws;
    request.may_end = false;
    request.progress = [&](int64_t done, int64_t of) { run.progress(stage_, done, of); };
    if (stage_ == "semantic") return semantic(request, run);
    if (stage_ == "coarse") return coarse(request, run);
    fine(request, run);
  }

 private:
  template <class Model>
  void condition(LoadedStage<Model>& loaded, StageRequest& request, at::Device device) const {
    Model& model = loaded.model;
    if (!model->stage().conditioned()) {
      if (!text_.empty()) throw UsageError("this model was trained without text; leave out --text");
      return;
    }
    if (text_.empty()) return;
    at::Tensor features;
    if (!model->stage().text.enabled()) {
      const std::string path = text_encoder_.empty() ? setting_of(loaded, "text_from") : text_encoder_;
      require(!path.empty(), "[{}] this model is conditioned on text; give --text_encoder FILE", stage_);
      features = open_text_encoder(path, device)->encode({text_}).embeddings.to(device);
    }
    request.condition = model->condition({text_}, features);
  }

  std::shared_ptr<const SemanticTokenizer> tokenizer(const StageRun& trained, at::Device device) const {
    const std::string path = tokenizer_.empty() ? setting_of(trained, "semantic_from") : tokenizer_;
    require(!path.empty(), "[{}] {} does not say where its tokenizer is; give --tokenizer FILE", stage_,
            trained.path);
    return open_semantic_tokenizer(path, device);
  }
  std::shared_ptr<const Codec> codec(const StageRun& trained, at::Device device) const {
    const std::string path = codec_.empty() ? setting_of(trained, "codec_from") : codec_;
    require(!path.empty(), "[{}] {} does not say where its codec is; give --codec RUN", stage_, trained.path);
    return open_codec(path, Weights::best, device);
  }
  at::Tensor prompt(int64_t rate_hz) const {
    if (prompt_.path.empty())
      throw UsageError(fmt::format("the {} stage works on a recording; give --prompt FILE", stage_));
    return prompt_.read(rate_hz).unsqueeze(0);
  }

  void semantic(StageRequest& request, const GenerationRun& run) const {
    auto loaded = load_stage<SemanticTransformer, SemanticConfig>(from_, stage_, stage_,
                                                                  weights_named(weights_), run.device);
    SemanticTransformer& model = loaded.model;
    condition(loaded, request, run.device);
    request.unique_consecutive = unique_consecutive(loaded);
    const auto tokens = tokenizer(loaded, run.device);
    const at::Tensor begin =
        (prompt_.path.empty() ? at::empty({1, 0}, at::kLong) : tokens->tokenize(prompt(tokens->rate_hz())))
            .to(run.device);
    const auto more = static_cast<int64_t>(seconds_ * tokens->tokens_per_second());
    const at::Tensor ids =
        generate_semantic(model, begin, begin.size(1) + more, request)[0].to(at::kCPU).contiguous();
    AtomicFile file(run.out);
    file.write(
        fmt::format("{}\n", fmt::join(ids.data_ptr<int64_t>(), ids.data_ptr<int64_t>() + ids.numel(), " ")));
    file.commit();
    run.say(fmt::format("{}  {} semantic tokens", run.out, ids.numel()));
  }

  // What the recording says, in other sound: its semantic tokens, and of its codes only those before the new
  // ones.
  void coarse(StageRequest& request, const GenerationRun& run) const {
    auto loaded = load_stage<CoarseTransformer, CoarseConfig>(from_, stage_, stage_, weights_named(weights_),
                                                              run.device);
    CoarseTransformer& model = loaded.model;
    condition(loaded, request, run.device);
    request.unique_consecutive = unique_consecutive(loaded);
    const auto tokens = tokenizer(loaded, run.device);
    const auto sound = codec(loaded, run.device);
    const auto frames = static_cast<int64_t>(seconds_ * sound->frames_per_second());
    const at::Tensor said = tokens->tokenize(prompt(tokens->rate_hz())).to(run.device);
    const at::Tensor made = generate_coarse(model, said, {}, frames, request);
    say_wave(run, run.out, sound->decode(made)[0], sound->rate_hz());
  }

  // The recording's coarse codes with fine codes of the model's.
  void fine(StageRequest& request, const GenerationRun& run) const {
    auto loaded =
        load_stage<FineTransformer, FineConfig>(from_, stage_, stage_, weights_named(weights_), run.device);
    FineTransformer& model = loaded.model;
    condition(loaded, request, run.device);
    const auto sound = codec(loaded, run.device);
    const at::Tensor codes = sound->encode(prompt(sound->rate_hz())).to(run.device);
    const at::Tensor coarse = codes.narrow(2, 0, model->config().coarse_quantizers).contiguous();
    const at::Tensor made = generate_fine(model, coarse, {}, request);
    say_wave(run, run.out, sound->decode(at::cat({coarse, made}, 2))[0], sound->rate_hz());
  }

  std::string stage_, from_, tokenizer_, codec_, text_, text_encoder_, weights_ = "ema";
  Prompt prompt_;
  double seconds_ = 4;
  SamplingConfig sampling_;
};

}  // namespace

std::unique_ptr<Generation> make_audiolm_generation() {
  return std::make_unique<AudioLmGeneration>();
}

std::unique_ptr<Generation> make_stage_generation(const std::string& stage) {
  return std::make_unique<StageGeneration>(stage);
}

}  // namespace melete

#include "systems/audiolm/samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "data/batch.h"
#include "run/sample_writer.h"
#include "systems/audiolm/stages.h"

namespace melete {

namespace {

constexpr int64_t kSamplesShown = 2;

int64_t shown(const at::Tensor& tokens) {
  return std::min(kSamplesShown, tokens.size(0));
}

std::string name_of(const Batch& batch, int64_t row, const std::string& label) {
  return sample_name(batch, row) + "_" + label;
}

Condition condition_of(StageImpl& model, const Batch& batch, int64_t rows) {
  const Batch some = batch.rows(0, rows);
  return model.condition(some.find_words("text"), some.find("text_features"));
}

// The first half of a row, without its padding.
at::Tensor first_half(const at::Tensor& tokens) {
  return tokens.narrow(1, 0, (tokens.size(1) + 1) / 2);
}

void write_decoded(const Codec& codec, const at::Tensor& codes, const Batch& batch, int64_t row,
                   const std::string& label, SampleWriter& writer) {
  const at::Tensor whole = codes.index({codes.ne(kPadding).all(-1)});
  if (whole.size(0) == 0) return;
  writer.audio(name_of(batch, row, label), codec.decode(whole.unsqueeze(0))[0],
               static_cast<int>(codec.rate_hz()));
}

class SemanticSampler : public StageSampler {
 public:
  SemanticSampler(SemanticTransformer model, uint64_t seed, bool unique_consecutive)
      : model_(std::move(model)), seed_(seed), unique_consecutive_(unique_consecutive) {}

  void write(const Batch& batch, const std::string& label, SampleWriter& writer) override {
    const int64_t rows = shown(batch["semantic"]);
    const at::Tensor given = batch["semantic"].narrow(0, 0, rows);
    RowDraws draws(seed_, "semantic", rows);
    StageRequest request;
    request.condition = condition_of(*model_, batch, rows);
    request.draws = &draws;
    request.unique_consecutive = unique_consecutive_;
    const at::Tensor ids = generate_semantic(model_, first_half(given), given.size(1), request);
    for (int64_t row = 0; row < rows; ++row) {
      const at::Tensor line = ids[row].index({ids[row].ne(kPadding)}).to(at::kCPU).contiguous();
      writer.text(name_of(batch, row, label),
                  fmt::format("{}\n", fmt::join(line.data_ptr<int64_t>(),
                                                line.data_ptr<int64_t>() + line.numel(), " ")));
    }
  }

 private:
  SemanticTransformer model_;
  uint64_t seed_;
  bool unique_consecutive_;
};

class CoarseSampler : public StageSampler {
 public:
  CoarseSampler(CoarseTransformer model, std::shared_ptr<const Codec> codec, uint64_t seed,
                bool unique_consecutive)
      : model_(std::move(model)),
        codec_(std::move(codec)),
        seed_(seed),
        unique_consecutive_(unique_consecutive) {}

  void write(const Batch& batch, const std::string& label, SampleWriter& writer) override {
    const int64_t rows = shown(batch["acoustic"]);
    const at::Tensor codes = batch["acoustic"].narrow(0, 0, rows).narrow(2, 0, model_->config().quantizers);
    const at::Tensor prompt = first_half(codes).clamp_min(0);
    RowDraws draws(seed_, "coarse", rows);
    StageRequest request;
    request.condition = condition_of(*model_, batch, rows);
    request.draws = &draws;
    request.unique_consecutive = unique_consecutive_;
    const at::Tensor made = generate_coarse(model_, batch["semantic"].narrow(0, 0, rows), prompt,
                                            codes.size(1) - prompt.size(1), request);
    for (int64_t row = 0; row < rows; ++row) {
      if (label == "online") write_decoded(*codec_, codes[row], batch, row, "codec", writer);
      write_decoded(*codec_, made[row], batch, row, label, writer);
    }
  }

 private:
  CoarseTransformer model_;
  std::shared_ptr<const Codec> codec_;
  uint64_t seed_;
  bool unique_consecutive_;
};

class FineSampler : public StageSampler {
 public:
  FineSampler(FineTransformer model, std::shared_ptr<const Codec> codec, uint64_t seed)
      : model_(std::move(model)), codec_(std::move(codec)), seed_(seed) {}

  void write(const Batch& batch, const std::string& label, SampleWriter& writer) override {
    const int64_t rows = shown(batch["acoustic"]);
    const at::Tensor codes = batch["acoustic"].narrow(0, 0, rows);
    const at::Tensor coarse = codes.narrow(2, 0, model_->config().coarse_quantizers);
    RowDraws draws(seed_, "fine", rows);
    StageRequest request;
    request.condition = condition_of(*model_, batch, rows);
    request.draws = &draws;
    const at::Tensor fine = generate_fine(model_, coarse, {}, request);
    for (int64_t row = 0; row < rows; ++row) {
      if (label == "online") write_decoded(*codec_, codes[row], batch, row, "codec", writer);
      write_decoded(*codec_, at::cat({coarse[row], fine[row]}, 1), batch, row, label, writer);
    }
  }

 private:
  FineTransformer model_;
  std::shared_ptr<const Codec> codec_;
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<StageSampler> make_sampler(SemanticTransformer model, uint64_t seed,
                                           bool unique_consecutive) {
  return std::make_unique<SemanticSampler>(std::move(model), seed, unique_consecutive);
}

std::unique_ptr<StageSampler> make_sampler(CoarseTransformer model, std::shared_ptr<const Codec> codec,
                                           uint64_t seed, bool unique_consecutive) {
  return std::make_unique<CoarseSampler>(std::move(model), std::move(codec), seed, unique_consecutive);
}

std::unique_ptr<StageSampler> make_sampler(FineTransformer model, std::shared_ptr<const Codec> codec,
                                           uint64_t seed) {
  return std::make_unique<FineSampler>(std::move(model), std::move(codec), seed);
}

}  // namespace melete

// The recipe of MuLaN.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "systems/musiclm/system.h"
#include "systems/musiclm/task.h"
#include "train/feed.h"

namespace melete {

namespace {

using namespace musiclm;

class MulanRecipe : public RecordingsRecipe {
 public:
  MulanRecipe() {
    batch_size = 16;
    data.segment_seconds = 2;
    model_.text.vocabulary = 0;
    train.steps = 0;  // one epoch
    train.ema.enabled = false;
  }

  std::string name() const override { return kMulanTask; }

  void settle() override {
    check();
    text_ = make_text_tokenizer(text_config_);
    settle_identity(text_identity_, text_->identity(), "text");
    settle_size(model_.text.vocabulary, text_->vocabulary(), "model.text.vocabulary", "text tokenizer");
  }

  std::string settle_on_paper() override {
    const bool has_file =
        !text_config_.sentencepiece.empty() || !text_config_.merges.empty() || !text_config_.pieces.empty();
    const bool needs_file = text_config_.tokenizer == "sentencepiece" || text_config_.tokenizer == "clip";
    if (!needs_file || has_file) {
      settle();
      return "";
    }
    // Bytes stand in for the pieces of a file that is not at hand: every id is below any vocabulary of
    // pieces.
    check();
    text_ = std::make_shared<ByteTokenizer>();
    if (model_.text.vocabulary == 0) model_.text.vocabulary = TextTowerConfig().vocabulary;
    return fmt::format("a text vocabulary of {}", model_.text.vocabulary);
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<MulanTask>(model_, task_, text_, batch_size, schema().json());
  }

  Feed open(const OpenRequest& request) override {
    Feed feed =
        open_recordings(*this, request, {.with_text = true, .has_words = [this](const std::string& text) {
                                           return !text_->pieces(text).empty();
                                         }});
    if (const int64_t rows = batch_size * request.group.size(); feed.training_items < rows)
      request.reporter.warning(fmt::format(
          "a batch of {} has the same of {} recordings several times, each held against itself; try "
          "--batch_size {}",
          rows, feed.training_items, std::max<int64_t>(2, feed.training_items / request.group.size())));
    return feed;
  }

  Batch example(int64_t items) override {
    const int64_t segment = data.segment_length();
    const int64_t samples = segment > 0 ? segment : 2 * model_.sample_rate_hz;
    Batch batch;
    batch.set("wave", 0.1 * at::randn({items, samples}));
    batch.set(Batch::length_column("wave"), at::full({items}, samples, at::kLong));
    std::vector<std::string> texts;
    for (int64_t i = 0; i < items; ++i) texts.push_back(fmt::format("{} a few words about a piece", i));
    batch.set_words("text", std::move(texts));
    return batch;
  }

 protected:
  void describe_task(Schema& s) override {
    s.section("text", text_config_, "how text becomes tokens");
    s.option("text_identity", text_identity_, "whose text tokens these are; filled in");
    s.find("train.steps")->at_least(0);
    s.section("model", model_, "what is trained");
    s.section("task", task_, "how it is trained");
  }

 private:
  void check() {
    require(
        batch_size >= 2,
        "[batch_size] pairs are held against the others of their batch: expected at least 2 (ideally as many "
        "as possible), got {}; task.chunk makes room",
        batch_size);
    require(model_.audio.input == "wave",
            "[model.audio.input] training hears recordings: expected wave, got {}", model_.audio.input);
    data.rates_hz = {model_.sample_rate_hz};
  }

  TextTokenizerConfig text_config_;
  std::string text_identity_;
  MulanConfig model_;
  MulanTaskConfig task_;
  std::shared_ptr<const TextTokenizer> text_;
};

}  // namespace

std::unique_ptr<Recipe> make_mulan_recipe() {
  return std::make_unique<MulanRecipe>();
}

}  // namespace melete

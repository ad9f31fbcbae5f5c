// Recipes of SPEAR-TTS's three trainings.
#include "core/base/error.h"
#include "roles/open.h"
#include "roles/tokenizers.h"
#include "systems/spear_tts/system.h"
#include "systems/spear_tts/task.h"
#include "systems/spear_tts/tokens.h"
#include "train/mixed_feed.h"

namespace melete {

namespace {

using namespace spear_tts;

const std::vector<std::string> kTasks = {kPretrainTask, kBackTranslateTask, kTextToSemanticTask};

class SpearRecipe : public RecordingsRecipe {
 public:
  SpearRecipe(std::string name, Direction direction) : name_(std::move(name)), direction_(direction) {
    data.segment_seconds = direction == kSpeechToSpeech ? 10 : 0;
    model_.speech.tokens = model_.text.tokens = 0;
    train.ema.enabled = false;
  }

  std::string name() const override { return name_; }
  bool can_start_from(const std::string& task) const override {
    return std::find(kTasks.begin(), kTasks.end(), task) != kTasks.end();
  }

  void settle() override {
    if (!semantic_from_.empty())
      tokenizers_.semantic = open_semantic_tokenizer(semantic_from_, frozen_device);
    TokenColumns columns = tokenizers_.columns();
    if (is_token_folder(data_from)) {
      columns = read_token_columns(data_from);
      check_columns(columns, data_from);
    } else {
      require(tokenizers_.semantic != nullptr,
              "[semantic_from] no semantic tokenizer given; make one with `melete train kmeans`");
      data.rates_hz = tokenizers_.rates_hz();
      data.multiple_of = tokenizers_.multiples();
    }
    const TokenColumn& speech = *columns.find("semantic");
    settle_identity(semantic_identity_, speech.identity, "semantic_from");
    settle_size(model_.speech.tokens, speech.values, "model.speech.tokens", "tokenizer");
    settle_text();
  }

  std::string settle_on_paper() override {
    if (!semantic_from_.empty() || !data_from.empty()) {
      settle();
      return "";
    }
    if (model_.speech.tokens == 0) model_.speech.tokens = 500;
    settle_text();
    return fmt::format("{} semantic tokens", model_.speech.tokens);
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<SpearTask>(name_, direction_, model_, task_, text_, schema().json());
  }

  Feed open(const OpenRequest& request) override {
    const SpearColumns columns{text_, repeats_, direction_ != kSpeechToSpeech};
    const FeedOptions options{direction_ != kSpeechToSpeech};
    require(
        generated_from_.empty() || is_token_folder(data_from),
        "[generated_from] generated pairs are tokens, and so must be what they are mixed with; run `melete "
        "data tokenize {} -o tokens` and give --data tokens",
        data_from);
    if (is_token_folder(data_from))
      return mapped(open_tokens(*this,
                                [this](const TokenColumns& found, const std::string& folder) {
                                  check_columns(found, folder);
                                },
                                request, options, {generated_from_, generated_share_}),
                    [columns](Batch& batch) { columns.add(batch); });
    const Tokenizers tokenizers = tokenizers_;
    return mapped(open_recordings(*this, request, options), [tokenizers, columns](Batch& batch) {
      tokenizers.add_columns(batch);
      columns.add(batch);
    });
  }

  Batch example(int64_t items) override {
    Batch batch;
    batch.set("semantic", at::randint(model_.speech.tokens, {items, 256}, at::kLong));
    if (direction_ != kSpeechToSpeech) {
      batch.set("text", at::randint(model_.text.tokens, {items, 64}, at::kLong));
      batch.set_words("text", std::vector<std::string>(static_cast<size_t>(items), "a few words"));
    }
    return batch;
  }

 protected:
  void describe_task(Schema& s) override {
    s.option("semantic_from", semantic_from_,
             "semantic tokenizer: what `melete train kmeans` or import wrote");
    s.option("semantic_identity", semantic_identity_, "whose tokens these are; filled in");
    s.option("repeats", repeats_,
             "keep tokens that follow themselves; false: a run of one token counts once");
    if (direction_ != kSpeechToSpeech) {
      s.option("generated_from", generated_from_,
               "pairs that `melete data back-translate` made: trained on beside the labelled ones");
      s.option("generated_share", generated_share_, "of the items, where there are generated pairs")
          .at_least(0)
          .at_most(1);
    }
    s.section("text", text_config_, "how text becomes tokens");
    s.option("text_identity", text_identity_, "whose text tokens these are; filled in");
    s.section("model", model_, "what is trained");
    s.section("task", task_, "how it is trained");
  }

 private:
  void check_columns(const TokenColumns& columns, const std::string& folder) const {
    const TokenColumn& speech = columns.require_column("semantic", folder);
    require(!tokenizers_.semantic || tokenizers_.semantic->identity() == speech.identity,
            "[data] the semantic tokens of {} were made by {}, and the tokenizer that was given is {}",
            folder, speech.identity, tokenizers_.semantic ? tokenizers_.semantic->identity() : "none");
  }

  // All three trainings have both vocabularies: each goes on from the one before.
  void settle_text() {
    text_ = make_text_tokenizer(text_config_);
    settle_identity(text_identity_, text_->identity(), "text");
    if (model_.text.tokens == 0) model_.text.tokens = text_->vocabulary();
    require(text_->vocabulary() <= model_.text.tokens,
            "[text] the model has {} tokens of text, and the tokenizer makes {}; give the one that it was "
            "trained with",
            model_.text.tokens, text_->vocabulary());
  }

  std::string name_;
  Direction direction_;
  std::string semantic_from_, semantic_identity_, text_identity_;
  std::string generated_from_;
  double generated_share_ = 0.9;
  bool repeats_ = false;
  TextTokenizerConfig text_config_;
  TextToSemanticConfig model_;
  TaskConfig task_;
  Tokenizers tokenizers_;
  std::shared_ptr<const TextTokenizer> text_;
};

}  // namespace

std::unique_ptr<Recipe> make_spear_pretrain_recipe() {
  return std::make_unique<SpearRecipe>(kPretrainTask, kSpeechToSpeech);
}

std::unique_ptr<Recipe> make_spear_back_translate_recipe() {
  return std::make_unique<SpearRecipe>(kBackTranslateTask, kSpeechToText);
}

std::unique_ptr<Recipe> make_spear_text_to_semantic_recipe() {
  return std::make_unique<SpearRecipe>(kTextToSemanticTask, kTextToSpeech);
}

}  // namespace melete

// What recipes of the three stages have in common, whatever conditions them: the frozen models, where tokens
// come from, and the sizes that follow. AudioLM's own (recipes.cpp) read text, MusicLM's hear a joint
// embedding.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "roles/tokenizers.h"
#include "systems/audiolm/samples.h"
#include "systems/audiolm/task.h"
#include "train/recipe.h"

namespace melete {

// How many different tokens there are.
struct TokenSizes {
  int64_t semantic_tokens = 0, codebook_size = 0, quantizers = 0;  // 0: not known
};

// What of a stage's sizes comes from the frozen models: forgotten, said by the settings, and filled in.
void forget_sizes(SemanticConfig& model);
void forget_sizes(CoarseConfig& model);
void forget_sizes(FineConfig& model);
TokenSizes given_sizes(const SemanticConfig& model);
TokenSizes given_sizes(const CoarseConfig& model);
TokenSizes given_sizes(const FineConfig& model);
void settle_sizes(SemanticConfig& model, const TokenSizes& sizes);
void settle_sizes(CoarseConfig& model, const TokenSizes& sizes);
void settle_sizes(FineConfig& model, const TokenSizes& sizes);

class StageRecipe : public RecordingsRecipe {
 public:
  explicit StageRecipe(const std::string& stage);

  void settle() override;
  std::string settle_on_paper() override;
  Feed open(const OpenRequest& request) override;
  Batch example(int64_t items) override;

 protected:
  void describe_task(Schema& schema) override;

  // Of whatever conditions the stage:
  virtual void describe_condition(Schema& schema) = 0;
  virtual void open_condition() = 0;                               // its frozen model, where there is one
  virtual void settle_condition(const TokenColumns& columns) = 0;  // no columns: on paper
  virtual bool condition_given() const { return false; }           // whether settling needs a frozen model
  virtual std::vector<std::string> condition_columns() const { return {}; }  // that batches must have
  virtual void add_condition(Batch& example, int64_t items) = 0;
  // Of the model:
  virtual void describe_model(Schema& schema) = 0;
  virtual void settle_sizes_of_model(const TokenSizes& sizes) = 0;
  virtual TokenSizes given_sizes_of_model() const = 0;

  bool from_tokens() const;  // rather than from recordings
  std::string stage_;
  StageTaskConfig task_;
  Tokenizers tokenizers_;

 private:
  std::vector<std::string> needed_columns() const;
  // A folder of tokens has what is needed, and it was made by the models that were given.
  void check_columns(const TokenColumns& columns, const std::string& folder) const;
  double rate_of(const char* column) const;

  bool needs_semantic_, needs_codec_;
  std::string semantic_from_, semantic_identity_, codec_from_, codec_identity_;
  TokenSizes sizes_;  // as they were settled
};

// The same once its task and the settings of its model are known.
template <class StageTaskOf, class Config>
class StageRecipeOf : public StageRecipe {
 public:
  explicit StageRecipeOf(const std::string& stage) : StageRecipe(stage) { forget_sizes(model_); }

 protected:
  void describe_model(Schema& schema) override { schema.section("model", model_, "what is trained"); }
  void settle_sizes_of_model(const TokenSizes& sizes) override { settle_sizes(model_, sizes); }
  TokenSizes given_sizes_of_model() const override { return given_sizes(model_); }

  // Sound needs the codec itself: tokens alone make no samples.
  void set_sampler(StageTaskOf& task) const {
    const auto seed = static_cast<uint64_t>(train.seed);
    const bool unique = task_.loss.unique_consecutive;
    if constexpr (std::is_base_of_v<SemanticTask, StageTaskOf>)
      task.set_sampler(make_sampler(task.transformer(), seed, unique));
    else if constexpr (std::is_base_of_v<CoarseTask, StageTaskOf>) {
      if (tokenizers_.codec)
        task.set_sampler(make_sampler(task.transformer(), tokenizers_.codec, seed, unique));
    } else if (tokenizers_.codec) {
      task.set_sampler(make_sampler(task.transformer(), tokenizers_.codec, seed));
    }
  }

  Config model_;
};

}  // namespace melete

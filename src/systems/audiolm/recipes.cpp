// Recipes of AudioLM's three stages, conditioned on text or on nothing.
#include "core/base/error.h"
#include "roles/open.h"
#include "systems/audiolm/recipe_stage.h"
#include "systems/audiolm/system.h"

namespace melete {

namespace {

template <class StageTaskOf, class Config>
class TextStageRecipe : public StageRecipeOf<StageTaskOf, Config> {
 public:
  using StageRecipeOf<StageTaskOf, Config>::StageRecipeOf;

  std::string name() const override { return this->stage_; }
  std::unique_ptr<Task> make_task() override {
    auto task = std::make_unique<StageTaskOf>(this->model_, this->task_, this->schema().json());
    this->set_sampler(*task);
    return task;
  }

 protected:
  void describe_condition(Schema& s) override {
    s.option("text_from", text_from_,
             "frozen text encoder; a model that is conditioned on text and has none trains its own");
    s.option("text_identity", text_identity_, "whose embeddings or text tokens these are; filled in");
    this->describe_model(s);
  }

  void open_condition() override {
    if (!text_from_.empty()) this->tokenizers_.text = open_text_encoder(text_from_, this->frozen_device);
  }

  // Text comes through a frozen encoder, or through one that is trained with the model.
  void settle_condition(const TokenColumns& /*columns*/) override {
    const auto& encoder = this->tokenizers_.text;
    StageConfig& stage = this->model_.stage;
    if (encoder) settle_identity(text_identity_, encoder->identity(), "text_from");
    require(stage.conditioned() || (!encoder && !stage.text.enabled()),
            "[model.condition] a text encoder was given, but the condition is none; try cross");
    if (!stage.conditioned()) return;
    if (encoder) {
      require(!stage.text.enabled(),
              "[model.text.tokenizer] text_from is a text encoder already; leave one of them out");
      stage.text_dim = encoder->dim();
      return;
    }
    require(!stage.unused_text_projection,
            "[text_from] this model comes from audiolm-pytorch and is conditioned on text; give the text "
            "encoder that it was trained with");
    if (!stage.text.enabled()) stage.text.tokenizer = "bytes";
    stage.text_dim = stage.text.dim;
    settle_identity(text_identity_, make_text_tokenizer(stage.text)->identity(), "model.text");
  }

  void add_condition(Batch& example, int64_t items) override {
    const StageConfig& stage = this->model_.stage;
    if (stage.conditioned() && !stage.text.enabled())
      example.set("text_features", at::randn({items, 8, stage.text_dim}));
    example.set_words("text", std::vector<std::string>(static_cast<size_t>(items), "a few words"));
  }

 private:
  std::string text_from_, text_identity_;
};

}  // namespace

std::unique_ptr<Recipe> make_semantic_recipe() {
  return std::make_unique<TextStageRecipe<SemanticTask, SemanticConfig>>("semantic");
}

std::unique_ptr<Recipe> make_coarse_recipe() {
  return std::make_unique<TextStageRecipe<CoarseTask, CoarseConfig>>("coarse");
}

std::unique_ptr<Recipe> make_fine_recipe() {
  return std::make_unique<TextStageRecipe<FineTask, FineConfig>>("fine");
}

}  // namespace melete

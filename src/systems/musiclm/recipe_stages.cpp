// Recipes of MusicLM's three stages: AudioLM's, conditioned on a joint embedding.
#include "core/base/error.h"
#include "roles/open.h"
#include "systems/audiolm/recipe_stage.h"
#include "systems/musiclm/system.h"
#include "systems/musiclm/task_stage.h"

namespace melete {

namespace {

template <class StageTaskOf, class Config>
class MusicStageRecipe : public StageRecipeOf<StageTaskOf, Config> {
 public:
  explicit MusicStageRecipe(const std::string& stage) : StageRecipeOf<StageTaskOf, Config>(stage) {
    StageConfig& config = this->model_.stage;
    config.transformer.condition = "cross";
    config.text_dim = 512;
    config.condition_drop = 0.1;
    condition_.dim = 0;
  }

  std::string name() const override { return music_stage_task(this->stage_); }
  std::unique_ptr<Task> make_task() override {
    auto task = std::make_unique<musiclm::MusicStageTask<StageTaskOf>>(this->stage_, this->model_, condition_,
                                                                       this->task_, this->schema().json());
    this->set_sampler(*task);
    return task;
  }

 protected:
  void describe_condition(Schema& s) override {
    s.option("condition_from", condition_from_, "joint embedding: a run or checkpoint of mulan");
    s.option("condition_identity", condition_identity_, "whose embeddings these are; filled in");
    this->describe_model(s);
    s.section("condition", condition_, "what it is told; dim, stages and stage_dims are filled in");
  }

  void open_condition() override {
    if (!condition_from_.empty())
      this->tokenizers_.joint = open_joint_embedding(condition_from_, this->frozen_device);
    require(this->from_tokens() || this->tokenizers_.joint != nullptr,
            "[condition_from] no joint embedding given; train one with `melete train mulan`");
  }
  bool condition_given() const override { return !condition_from_.empty(); }
  std::vector<std::string> condition_columns() const override { return {"joint"}; }

  void settle_condition(const TokenColumns& columns) override {
    StageConfig& stage = this->model_.stage;
    require(stage.conditioned() && !stage.text.enabled(),
            "[model.condition] MusicLM's stages are conditioned on the joint embedding alone; set cross or "
            "prefix, and no text encoder");
    if (const TokenColumn* joint = columns.find("joint")) {
      settle_identity(condition_identity_, joint->identity, "condition_from");
      settle_size(condition_.dim, joint->width, "condition.dim", "joint embedding");
    } else if (condition_.dim == 0) {
      condition_.dim = 128;  // on paper: as a MuLaN has it
    }
    condition_.stages = {this->stage_};
    condition_.stage_dims = {stage.text_dim};
  }

  void add_condition(Batch& example, int64_t items) override {
    const at::Tensor joint = at::randn({items, condition_.dim});
    example.set("joint", joint / joint.norm(2, {1}, true));
  }

 private:
  std::string condition_from_, condition_identity_;
  musiclm::EmbedQuantizerConfig condition_;
};

}  // namespace

std::string music_stage_task(const std::string& stage) {
  return "musiclm-" + stage;
}

std::unique_ptr<Recipe> make_music_stage_recipe(const std::string& stage) {
  if (stage == "semantic") return std::make_unique<MusicStageRecipe<SemanticTask, SemanticConfig>>(stage);
  if (stage == "coarse") return std::make_unique<MusicStageRecipe<CoarseTask, CoarseConfig>>(stage);
  require(stage == "fine", "[musiclm] expected a stage semantic, coarse or fine, got {}", stage);
  return std::make_unique<MusicStageRecipe<FineTask, FineConfig>>(stage);
}

}  // namespace melete

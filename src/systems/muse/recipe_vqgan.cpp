#include "core/base/error.h"
#include "io/foreign_file.h"
#include "systems/muse/system.h"
#include "systems/muse/task_vqgan.h"
#include "train/picture_feed.h"

namespace melete {

namespace {

class VqganRecipe : public PicturesRecipe {
 public:
  VqganRecipe() {
    train.ema.update_after_step = 0;
    train.ema.update_every = 1;
  }

  std::string name() const override { return kVqganTask; }

  void settle() override {
    settle_sides();
    if (!vgg_from_.empty()) vgg_ = torchvision::load_vgg16(read_foreign(vgg_from_).tensors);
  }

  std::string settle_on_paper() override {
    settle_sides();
    return vgg_from_.empty() ? "no perceptual loss" : "no perceptual loss, though vgg_from is given";
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<muse::VqganTask>(config_, vgg_, schema().json());
  }

  Feed open(const OpenRequest& request) override {
    Feed feed = open_pictures(*this, request);
    if (vgg_.is_empty() && config_.model.loss.perceptual_weight > 0)
      feed.description.push_back(
          "perceptual loss: none, since there is no VGG; give torchvision's vgg16 weights as vgg_from");
    return feed;
  }

  Batch example(int64_t items) override {
    Batch batch;
    batch.set("picture", at::rand({items, config_.model.vae.channels, height(), width()}));
    return batch;
  }

 protected:
  void describe_task(Schema& s) override {
    s.option("vgg_from", vgg_from_, "torchvision's vgg16 weights, for the perceptual loss; empty: none");
    muse::describe(s, config_);
  }

 private:
  void settle_sides() {
    data.prepare.channels = config_.model.vae.channels;
    const int64_t step = int64_t{1} << config_.model.vae.layers;
    require(height() % step == 0 && width() % step == 0,
            "[data.height] {} layers need sides that are multiples of {}, got {} x {}",
            config_.model.vae.layers, step, height(), width());
  }

  std::string vgg_from_;
  muse::VqganTaskConfig config_;
  Vgg16 vgg_{nullptr};
};

}  // namespace

std::unique_ptr<Recipe> make_vqgan_recipe() {
  return std::make_unique<VqganRecipe>();
}

}  // namespace melete

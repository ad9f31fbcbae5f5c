#include <cmath>

#include "core/base/error.h"
#include "roles/open.h"
#include "systems/muse/load.h"
#include "systems/muse/system.h"
#include "systems/muse/task_maskgit.h"
#include "train/picture_feed.h"

namespace melete {

namespace {

// Assumed where nothing is said of the frozen models: Muse's VQ-GAN, and a T5 of the base size.
constexpr int64_t kUsualCodes = 8192, kUsualPixelsPerToken = 16, kUsualTextDim = 768;

class MaskGitRecipe : public PicturesRecipe {
 public:
  MaskGitRecipe() {
    auto& transformer = model_.maskgit.transformer;
    transformer.tokens = transformer.positions = transformer.text_dim = 0;
    auto& critic = model_.maskgit.critic_transformer;
    critic.tokens = critic.positions = critic.text_dim = 0;
    data.prepare.flip = false;  // a caption may say left and right
  }

  std::string name() const override { return kMaskGitTask; }

  void settle() override {
    settle_super_resolution();
    require(!vqgan_from_.empty(), "[vqgan_from] no VQ-GAN given; train one with `melete train vqgan`");
    pictures_ = muse::open_picture_tokenizer(vqgan_from_, Weights::best, frozen_device);
    settle_identity(vqgan_identity_, pictures_->identity(), "vqgan_from");
    if (smaller_height_ > 0) {
      smaller_ = smaller_vqgan_from_.empty()
                     ? pictures_
                     : muse::open_picture_tokenizer(smaller_vqgan_from_, Weights::best, frozen_device);
      settle_identity(smaller_vqgan_identity_, smaller_->identity(), "smaller_vqgan_from");
      condition_tokens_ = smaller_->tokens_of(smaller_height_, smaller_width());
      // A smaller picture's tokens are looked up among those of the large one.
      require(
          smaller_->codebook_size() <= pictures_->codebook_size() &&
              smaller_->channels() == pictures_->channels(),
          "[smaller_vqgan_from] expected at most {} codes and {} channels as vqgan_from has, got {} and {}",
          pictures_->codebook_size(), pictures_->channels(), smaller_->codebook_size(), smaller_->channels());
    } else {
      require(smaller_vqgan_from_.empty(),
              "[smaller_vqgan_from] only super-resolution needs it; set smaller_height");
    }
    data.prepare.channels = pictures_->channels();
    if (!text_from_.empty()) {
      text_ = open_text_encoder(text_from_, frozen_device);
      settle_identity(text_identity_, text_->identity(), "text_from");
    }
    settle_text(text_ ? text_->dim() : 0);
    if (smaller_) settle_places(smaller_->pixels_per_token(), pictures_->pixels_per_token());
    settle_tokens(pictures_->codebook_size(), pictures_->tokens_of(height(), width()));
  }

  std::string settle_on_paper() override {
    if (!vqgan_from_.empty()) {
      settle();
      return "";
    }
    settle_super_resolution();
    auto& transformer = model_.maskgit.transformer;
    const int64_t frozen_dim = transformer.text_dim > 0 ? transformer.text_dim : kUsualTextDim;
    settle_text(text_from_.empty() ? 0 : frozen_dim);
    // Tokens of such a size that the positions are used, where it is said how many there are.
    const auto area = static_cast<double>(height() * width());
    const int64_t pixels =
        transformer.positions > 0
            ? std::llround(std::ceil(std::sqrt(area / static_cast<double>(transformer.positions))))
            : kUsualPixelsPerToken;
    if (smaller_height_ > 0) {
      condition_tokens_ = smaller_height_ / pixels * (smaller_width() / pixels);
      settle_places(pixels, pixels);
    }
    const int64_t codes = transformer.tokens > 0 ? transformer.tokens : kUsualCodes;
    settle_tokens(codes, height() / pixels * (width() / pixels));
    return fmt::format("{} tokens of {} kinds a picture", tokens_, codes);
  }

  std::unique_ptr<Task> make_task() override {
    return std::make_unique<muse::MaskGitTask>(
        model_, task_, muse::SamplePictures{pictures_, height(), width(), text_}, schema().json());
  }

  Feed open(const OpenRequest& request) override {
    if (is_token_folder(data_from)) return open_encoded(request);
    FeedOptions options;
    options.with_text = true;
    const auto pictures = pictures_, smaller = smaller_;
    const auto text = text_;
    const int64_t low = smaller_height_, wide = smaller_height_ > 0 ? smaller_width() : 0;
    return mapped(open_pictures(*this, request, options), [pictures, smaller, text, low, wide](Batch& batch) {
      const at::Tensor shown = batch["picture"];
      batch.set("tokens", pictures->tokens(shown));
      if (smaller) batch.set("condition", smaller->tokens(muse::resized(shown, low, wide)));
      if (text) batch.set("text_features", text->encode(batch.words("text")).embeddings);
    });
  }

  Batch example(int64_t items) override {
    const auto& transformer = model_.maskgit.transformer;
    Batch batch;
    batch.set("tokens", at::randint(transformer.tokens, {items, tokens_}, at::kLong));
    if (condition_tokens_ > 0)
      batch.set("condition", at::randint(transformer.tokens, {items, condition_tokens_}, at::kLong));
    if (!model_.text.enabled()) batch.set("text_features", at::randn({items, 16, transformer.text_dim}));
    batch.set_words("text", std::vector<std::string>(static_cast<size_t>(items), "a few words"));
    return batch;
  }

 protected:
  void describe_task(Schema& s) override {
    s.option("vqgan_from", vqgan_from_, "VQ-GAN whose tokens are learned: a run or a checkpoint");
    s.option("vqgan_identity", vqgan_identity_, "whose tokens these are; filled in");
    s.option("super_resolution", super_resolution_,
             "the tokens of the same picture in small are given, smaller_height high");
    s.option("smaller_height", smaller_height_,
             "height of the picture in small; 0: none is given, or with super_resolution half as high")
        .at_least(0)
        .unit("pixels");
    s.option("smaller_vqgan_from", smaller_vqgan_from_, "VQ-GAN of that picture; empty: the same one");
    s.option("smaller_vqgan_identity", smaller_vqgan_identity_, "whose tokens those are; filled in");
    s.option("text_from", text_from_, "frozen text encoder; empty: model.text is trained along");
    s.option("text_identity", text_identity_, "whose embeddings or text tokens these are; filled in");
    s.section("model", model_, "what is trained");
    s.section("task", task_, "how it is trained");
  }

 private:
  // Either setting asks for it, and both say so from then on.
  void settle_super_resolution() {
    if (super_resolution_ && smaller_height_ == 0) smaller_height_ = height() / 2;
    super_resolution_ = smaller_height_ > 0;
    require(
        !super_resolution_ || task_.prompts.empty(),
        "[task.prompts] super-resolution makes pictures of smaller ones, which prompts have none of; leave "
        "them out");
  }

  // What `melete images encode` has made of the pictures.
  Feed open_encoded(const OpenRequest& request) const {
    const auto check = [this](const TokenColumns& columns, const std::string& folder) {
      const auto same = [&](const char* name, const std::string& wanted, const char* setting) {
        require(columns.require_column(name, folder).identity == wanted,
                "[data] the {} of {} were made by another VQ-GAN than {}; encode the pictures anew", name,
                folder, setting);
      };
      same("tokens", pictures_->identity(), "vqgan_from");
      if (smaller_) same("condition", smaller_->identity(), "smaller_vqgan_from");
    };
    Feed feed = open_picture_tokens(*this, check, request);
    const auto text = text_;
    const int64_t tokens = tokens_, condition = condition_tokens_;
    return mapped(std::move(feed), [text, tokens, condition](Batch& batch) {
      require(batch["tokens"].size(1) == tokens,
              "[data] pictures of {} tokens were encoded, data.height and data.width make {}",
              batch["tokens"].size(1), tokens);
      if (condition > 0)
        require(batch["condition"].size(1) == condition,
                "[data] smaller pictures of {} tokens were encoded, smaller_height makes {}",
                batch["condition"].size(1), condition);
      if (text) batch.set("text_features", text->encode(batch.words("text")).embeddings);
    });
  }

  int64_t smaller_width() const { return smaller_height_ * width() / height(); }

  // dim: of a frozen encoder's features; 0: there is none.
  void settle_text(int64_t dim) {
    if (dim > 0) {
      require(!model_.text.enabled(),
              "[model.text.tokenizer] text_from is a text encoder already; leave one of them out");
    } else {
      if (!model_.text.enabled()) model_.text.tokenizer = "bytes";
      dim = model_.text.dim;
      settle_identity(text_identity_, make_text_tokenizer(model_.text)->identity(), "model.text");
    }
    settle_size(model_.maskgit.transformer.text_dim, dim, "model.transformer.text_dim", "text encoder");
  }

  // Where the tokens of the smaller picture belong in the large one, for those that ask.
  void settle_places(int64_t small_pixels, int64_t pixels) {
    for (auto* reader : {&model_.maskgit.transformer, &model_.maskgit.critic_transformer}) {
      if (reader->condition_doublings == 0) continue;
      const int64_t columns = smaller_width() / small_pixels, rows = smaller_height_ / small_pixels;
      const int64_t times = int64_t{1} << reader->condition_doublings;
      settle_size(reader->condition_columns, columns, "model.transformer.condition_columns",
                  "smaller picture");
      require(columns * times == width() / pixels && rows * times == height() / pixels &&
                  columns * rows == condition_tokens_,
              "[model.transformer.condition_doublings] {} x {} places, doubled {} times, are not the {} x {} "
              "of the picture; set 0, or another smaller_height",
              rows, columns, reader->condition_doublings, height() / pixels, width() / pixels);
    }
  }

  void settle_tokens(int64_t codes, int64_t tokens) {
    tokens_ = tokens;
    auto& transformer = model_.maskgit.transformer;
    settle_size(transformer.tokens, codes, "model.transformer.tokens", "VQ-GAN");
    if (transformer.positions == 0) transformer.positions = tokens;
    require(tokens <= transformer.positions,
            "[model.transformer.positions] a picture of {} x {} has {} tokens, which do not fit into {}",
            height(), width(), tokens, transformer.positions);
    require(
        transformer.condition_positions == 0 || condition_tokens_ <= transformer.condition_positions,
        "[model.transformer.condition_positions] the smaller picture has {} tokens, which do not fit into {}",
        condition_tokens_, transformer.condition_positions);
    auto& critic = model_.maskgit.critic_transformer;
    settle_size(critic.tokens, transformer.tokens, "model.critic_transformer.tokens", "VQ-GAN");
    if (critic.positions == 0) critic.positions = transformer.positions;
    settle_size(critic.text_dim, transformer.text_dim, "model.critic_transformer.text_dim", "text encoder");
  }

  std::string vqgan_from_, vqgan_identity_, smaller_vqgan_from_, smaller_vqgan_identity_, text_from_,
      text_identity_;
  bool super_resolution_ = false;
  int64_t smaller_height_ = 0;
  muse::TextedMaskGitConfig model_;
  muse::MaskGitTaskConfig task_;
  std::shared_ptr<const muse::PictureTokenizer> pictures_, smaller_;
  std::shared_ptr<const TextEncoder> text_;
  int64_t tokens_ = 0, condition_tokens_ = 0;  // of a picture, of the smaller one
};

}  // namespace

std::unique_ptr<Recipe> make_maskgit_recipe() {
  return std::make_unique<MaskGitRecipe>();
}

}  // namespace melete

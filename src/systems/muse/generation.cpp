// `melete generate muse`: text to a picture, and on to a larger one.
#include "config/schema.h"
#include "core/base/error.h"
#include "data/base/picture_resize.h"
#include "data/pictures.h"
#include "generate/sampling.h"
#include "io/base/picture_file.h"
#include "systems/muse/load.h"
#include "systems/muse/muse.h"
#include "systems/muse/system.h"

namespace melete {

namespace {

// Of the run's size, whatever size the file has. [channels, height, width]
at::Tensor picture_from(const std::string& path, const muse::LoadedMaskGit& stage, int64_t channels) {
  PicturePreparation how;
  how.height = stage.height;
  how.width = stage.width;
  how.channels = channels;
  return picture_tensor(prepare_picture(read_picture(path).image, how, {}), channels);
}

muse::PictureStage stage_of(muse::LoadedMaskGit& loaded) {
  muse::PictureStage stage;
  stage.maskgit = loaded.model->maskgit;
  stage.vae = loaded.pictures->vae();
  if (loaded.smaller) stage.condition_vae = loaded.smaller->vae();
  return stage;
}

class MuseGeneration final : public Generation {
 public:
  void describe(Schema& s) override {
    s.option("from", paths_.run, "run or checkpoint of maskgit");
    s.option("text", text_, "what to show");
    s.option("negative", negative_, "what not to show; guidance leads away from it");
    s.option("count", count_, "pictures of it, each with draws of its own").at_least(1);
    s.option("grid", grid_, "several in one file; false: a file each");
    s.option("guidance", guidance_.scale, "how far beyond what it would say without the text; 1: none");
    melete::describe(s, decoding_);
    s.option("large", large_.run, "run of maskgit with smaller_height: makes a larger picture of the first");
    s.option("image", image_, "picture to start from");
    s.option("mask", mask_, "picture as large as that one; what is white in it is made anew, the rest stays");
    s.option("strength", strength_, "without a mask: share of the picture's tokens that is made anew")
        .at_least(0)
        .at_most(1);
    s.option("save_steps", save_steps_, "also write a filmstrip of the decoding to this PNG");
    s.option("vqgan", paths_.vqgan, "VQ-GAN; default: where the run says");
    s.option("text_encoder", paths_.text_encoder, "frozen text encoder; default: where the run says");
    s.option("weights", weights_,
             "ema: averaged, where there is an average; online: as the optimiser left them")
        .one_of({"ema", "online"});
  }

  std::vector<std::string> examples() const override {
    return {"muse --from runs/maskgit --text \"a red circle\" -o out.png",
            "muse --from runs/maskgit --text \"a red circle\" --negative \"a square\" --count 4 --guidance 5 "
            "-o four.png",
            "muse --from runs/maskgit --text \"a blue star\" --image in.png --mask mask.png -o out.png"};
  }
  std::vector<std::string> extensions() const override { return {".png"}; }

  void run(const GenerationRun& run) override {
    if (paths_.run.empty()) throw UsageError("expected --from RUN of maskgit, got none");
    if (text_.empty()) throw UsageError("expected --text WORDS, got none");
    if (!mask_.empty() && image_.empty())
      throw UsageError("a mask says what of a picture is made anew; give --image");
    const at::NoGradGuard no_grad;
    muse::LoadedMaskGit base = muse::load_maskgit_run(paths_, weights_named(weights_));
    require(!base.smaller, "[muse] {} makes large pictures of small ones; give it as --large", paths_.run);

    muse::PictureRequest request = request_for(base);
    start_from_image(request, base);
    std::vector<at::Tensor> film;
    at::Tensor made = stage_pictures(base, request, "tokens", run, save_steps_.empty() ? nullptr : &film);
    if (!film.empty()) {
      write_png(save_steps_, picture_grid(film, static_cast<int64_t>(film.size())));
      run.say(fmt::format("{}  {} steps", save_steps_, film.size()));
    }
    if (!large_.run.empty()) {
      muse::LoadedMaskGit larger = muse::load_maskgit_run(large_, weights_named(weights_));
      require(larger.smaller != nullptr, "[muse] {} reads no smaller picture; train it with smaller_height",
              large_.run);
      muse::PictureRequest more = request_for(larger);
      more.smaller = muse::resized(made, larger.smaller_height, larger.smaller_width);
      made = stage_pictures(larger, more, "larger", run, nullptr);
    }
    write(made, run);
  }

 private:
  muse::PictureRequest request_for(muse::LoadedMaskGit& stage) const {
    const auto rows = static_cast<size_t>(count_);
    muse::PictureRequest request;
    request.text = stage.read(std::vector<std::string>(rows, text_));
    if (!negative_.empty()) request.negative = stage.read(std::vector<std::string>(rows, negative_));
    request.rows = stage.height / stage.pictures->pixels_per_token();
    request.columns = stage.width / stage.pictures->pixels_per_token();
    request.guidance = guidance_;
    request.decoding = decoding_;
    return request;
  }

  void start_from_image(muse::PictureRequest& request, const muse::LoadedMaskGit& stage) const {
    if (image_.empty()) return;
    request.pictures =
        picture_from(image_, stage, stage.pictures->channels()).unsqueeze(0).repeat({count_, 1, 1, 1});
    if (mask_.empty()) {
      request.strength = strength_;
      return;
    }
    const at::Tensor anew = picture_from(mask_, stage, 1) > 0.5;  // [1, height, width]
    require(anew.any().item<bool>(), "[mask] nothing in {} is white: nothing would be made anew", mask_);
    request.kept = muse::kept_tokens(anew, stage.pictures->pixels_per_token()).repeat({count_, 1, 1});
  }

  // film: the first picture after every step, where it is wanted. -> [count, channels, height, width] in [0,
  // 1]
  at::Tensor stage_pictures(muse::LoadedMaskGit& loaded, const muse::PictureRequest& request,
                            const char* part, const GenerationRun& run, std::vector<at::Tensor>* film) const {
    muse::PictureStage stage = stage_of(loaded);
    RowDraws draws(run.seed, part, count_);
    const auto observer = [&](const MaskingStep& step) {
      run.progress(part, step.step + 1, decoding_.steps);
      if (film == nullptr) return;
      const at::Tensor first = step.tokens.narrow(0, 0, 1);
      film->push_back(loaded.pictures->pictures(first, loaded.height, loaded.width)[0].clamp(0, 1));
    };
    return muse::make_pictures(stage, request, draws, observer).pictures.to(at::kFloat).clamp(0, 1);
  }

  void write(const at::Tensor& made, const GenerationRun& run) const {
    const auto size = fmt::format("{} x {} pixels", made.size(3), made.size(2));
    if (count_ > 1 && grid_) {
      std::vector<at::Tensor> all;
      for (int64_t i = 0; i < count_; ++i) all.push_back(made[i]);
      int64_t columns = 1;
      while (columns * columns < count_) ++columns;
      write_png(run.out, picture_grid(all, columns));
      run.say(fmt::format("{}  {} pictures of {}", run.out, count_, size));
      return;
    }
    for (int64_t i = 0; i < count_; ++i) {
      const std::string path = numbered_path(run.out, i, count_);
      write_png(path, picture_image(made[i]));
      run.say(fmt::format("{}  {}", path, size));
    }
  }

  muse::MaskGitPaths paths_, large_;
  std::string text_, negative_, image_, mask_, save_steps_, weights_ = "ema";
  int64_t count_ = 1;
  bool grid_ = true;
  double strength_ = 1;
  muse::Guidance guidance_;
  IterativeMaskingConfig decoding_;
};

}  // namespace

std::unique_ptr<Generation> make_muse_generation() {
  return std::make_unique<MuseGeneration>();
}

}  // namespace melete

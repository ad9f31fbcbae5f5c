// `melete generate muse`: text to a picture, and on to a larger one.
#include <algorithm>
#include <filesystem>

#include "config/schema.h"
#include "core/base/error.h"
#include "data/base/picture_resize.h"
#include "data/base/text_lines.h"
#include "data/pictures.h"
#include "generate/product_precision.h"
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
    s.option("texts", texts_, "file of such texts, one a line: a picture of each");
    s.option("negative", negative_, "what not to show; guidance leads away from it");
    s.option("count", count_, "pictures of it, each with draws of its own").at_least(1);
    s.option("batch", batch_, "pictures that are made at once").at_least(1);
    s.option("grid", grid_, "several in one file; false: a file each, with its text beside it");
    s.option("guidance", guidance_.scale, "how far beyond what it would say without the text; 1: none");
    melete::describe(s, decoding_);
    s.option("critic", decoding_.use_critic, "short for use_critic");
    s.option("large", large_.run, "run of maskgit with smaller_height: makes a larger picture of the first");
    large_.flags = "--large_";
    s.option("large_vqgan", large_.vqgan, "its VQ-GAN; default: where that run says");
    s.option("large_smaller_vqgan", large_.smaller_vqgan,
             "its VQ-GAN of smaller pictures; default: where that run says, or its only one");
    s.option("large_text_encoder", large_.text_encoder,
             "its frozen text encoder; default: where that run says");
    s.option("image", image_, "picture to start from");
    s.option("mask", mask_, "picture as large as that one; what is white in it is made anew, the rest stays");
    s.option("strength", strength_, "without a mask: share of the picture's tokens that is made anew")
        .at_least(0)
        .at_most(1);
    s.option("save_steps", save_steps_,
             "also write a filmstrip of the decoding to this PNG; with a large run a row of each");
    s.option("vqgan", paths_.vqgan, "VQ-GAN; default: where the run says");
    s.option("text_encoder", paths_.text_encoder, "frozen text encoder; default: where the run says");
    s.option("weights", weights_,
             "ema: averaged, where there is an average; online: as the optimiser left them")
        .one_of({"ema", "online"});
    s.option("precision", precision_, kProductPrecision).one_of(product_precisions());
  }

  std::vector<std::string> examples() const override {
    return {"muse --from runs/maskgit --text \"a red circle\" -o out.png",
            "muse --from runs/maskgit --text \"a red circle\" --negative \"a square\" --count 4 --guidance 5 "
            "-o four.png",
            "muse --from runs/maskgit --texts captions.txt --no-grid -o made/picture.png",
            "muse --from runs/maskgit --text \"a blue star\" --image in.png --mask mask.png -o out.png",
            "muse --from runs/maskgit --large runs/maskgit_large --text \"a blue star\" -o large.png"};
  }
  std::vector<std::string> extensions() const override { return {".png"}; }

  void run(const GenerationRun& run) override {
    if (paths_.run.empty()) throw UsageError("expected --from RUN of maskgit, got none");
    if (text_.empty() == texts_.empty())
      throw UsageError("expected --text WORDS or --texts FILE, one of them");
    refuse_what_means_nothing(run);
    // Before the work, not after it.
    for (const std::string& path : {run.out, save_steps_})
      if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
        std::filesystem::create_directories(folder);
    const at::NoGradGuard no_grad;
    const std::vector<std::string> texts = all_texts();
    muse::LoadedMaskGit base = muse::load_maskgit_run(paths_, weights_named(weights_), run.device);
    require(!base.smaller, "[muse] {} makes large pictures of small ones; give it as --large", paths_.run);
    muse::LoadedMaskGit larger;
    if (!large_.run.empty()) {
      larger = muse::load_maskgit_run(large_, weights_named(weights_), run.device);
      require(larger.smaller != nullptr, "[muse] {} reads no smaller picture; train it with smaller_height",
              large_.run);
    }
    if ((run.given("critic") || run.given("use_critic")) && decoding_.use_critic &&
        !base.model->maskgit->has_critic() && (large_.run.empty() || !larger.model->maskgit->has_critic()))
      throw UsageError(fmt::format("--critic: {} has none; train it with model.critic", paths_.run));

    std::vector<at::Tensor> film, large_film, made;
    for (size_t first = 0; first < texts.size(); first += static_cast<size_t>(batch_)) {
      const size_t end = std::min(texts.size(), first + static_cast<size_t>(batch_));
      const std::vector<std::string> some(texts.begin() + static_cast<ptrdiff_t>(first),
                                          texts.begin() + static_cast<ptrdiff_t>(end));
      const auto row = static_cast<int64_t>(first);
      muse::PictureRequest request = request_for(base, some);
      start_from_image(request, base, static_cast<int64_t>(some.size()), run.device);
      const bool filmed = !save_steps_.empty() && first == 0;
      at::Tensor pictures = stage_pictures(base, request, {"tokens", row}, run, filmed ? &film : nullptr);
      if (!large_.run.empty()) {
        muse::PictureRequest more = request_for(larger, some);
        more.smaller = muse::resized(pictures, larger.smaller_height, larger.smaller_width);
        // What the mask keeps is the picture's own at this size, too. A variation is made wholly anew.
        if (!mask_.empty()) start_from_image(more, larger, static_cast<int64_t>(some.size()), run.device);
        pictures = stage_pictures(larger, more, {"larger", row}, run, filmed ? &large_film : nullptr);
      }
      for (const at::Tensor& picture : pictures.unbind(0)) made.push_back(picture);
    }
    if (!film.empty()) {
      const auto steps = static_cast<int64_t>(film.size());
      if (!large_film.empty())
        for (at::Tensor& frame : film)
          frame = muse::resized(frame.unsqueeze(0), larger.height, larger.width)[0].clamp(0, 1);
      film.insert(film.end(), large_film.begin(), large_film.end());
      write_png(save_steps_, picture_grid(film, steps));
      run.say(fmt::format("{}  {} steps", save_steps_, film.size()));
    }
    write(made, texts, run);
  }

 private:
  void refuse_what_means_nothing(const GenerationRun& run) const {
    if (!mask_.empty() && image_.empty())
      throw UsageError("a mask says what of a picture is made anew; give --image");
    if (run.given("strength") && image_.empty())
      throw UsageError("--strength is the share of a picture that is made anew; give --image");
    if (run.given("strength") && !mask_.empty())
      throw UsageError("the mask says what is made anew; leave --strength or --mask out");
    if (!negative_.empty() && guidance_.scale == 1)
      throw UsageError(
          "--guidance 1 is none, and --negative is what guidance leads away from; leave one out");
    if (run.given("top_k") && run.given("filter_threshold"))
      throw UsageError("--top_k and --filter_threshold say the same; leave one out");
    if (large_.run.empty())
      for (const char* of_large : {"large_vqgan", "large_smaller_vqgan", "large_text_encoder"})
        if (run.given(of_large))
          throw UsageError(fmt::format("--{} is of a run that --large names", of_large));
  }

  // One a picture.
  std::vector<std::string> all_texts() const {
    const std::vector<std::string> lines =
        texts_.empty() ? std::vector<std::string>{text_} : text_lines(texts_);
    std::vector<std::string> all;
    for (const std::string& line : lines) all.insert(all.end(), static_cast<size_t>(count_), line);
    return all;
  }

  muse::PictureRequest request_for(muse::LoadedMaskGit& stage, const std::vector<std::string>& texts) const {
    muse::PictureRequest request;
    request.text = stage.read(texts);
    if (!negative_.empty()) request.negative = stage.read(std::vector<std::string>(texts.size(), negative_));
    request.rows = stage.height / stage.pictures->pixels_per_token();
    request.columns = stage.width / stage.pictures->pixels_per_token();
    request.guidance = guidance_;
    request.decoding = decoding_;
    request.precision = precision_;
    return request;
  }

  void start_from_image(muse::PictureRequest& request, const muse::LoadedMaskGit& stage, int64_t rows,
                        at::Device device) const {
    if (image_.empty()) return;
    request.pictures =
        picture_from(image_, stage, stage.pictures->channels()).to(device).repeat({rows, 1, 1, 1});
    if (mask_.empty()) {
      request.strength = strength_;
      return;
    }
    const at::Tensor anew = picture_from(mask_, stage, 1) > 0.5;  // [1, height, width]
    require(anew.any().item<bool>(), "[mask] nothing in {} is white: nothing would be made anew", mask_);
    request.kept =
        muse::kept_tokens(anew, stage.pictures->pixels_per_token()).repeat({rows, 1, 1}).to(device);
  }

  struct Part {
    const char* name;
    int64_t first_row;  // of all pictures; draws are each picture's own
  };
  // film: the first picture after every step, where it is wanted.
  // -> [rows, channels, height, width] in [0, 1]
  at::Tensor stage_pictures(muse::LoadedMaskGit& loaded, const muse::PictureRequest& request,
                            const Part& part, const GenerationRun& run, std::vector<at::Tensor>* film) const {
    muse::PictureStage stage = stage_of(loaded);
    RowDraws draws(run.seed, part.name, request.text.size(0), part.first_row);
    const auto observer = [&](const MaskingStep& step) {
      run.progress(part.name, step.step + 1, decoding_.steps);
      if (film == nullptr) return;
      const at::Tensor first = step.tokens.narrow(0, 0, 1);
      film->push_back(loaded.pictures->pictures(first, loaded.height, loaded.width)[0].clamp(0, 1));
    };
    return muse::make_pictures(stage, request, draws, observer).pictures.to(at::kFloat).clamp(0, 1);
  }

  void write(const std::vector<at::Tensor>& made, const std::vector<std::string>& texts,
             const GenerationRun& run) const {
    const auto count = static_cast<int64_t>(made.size());
    const auto size = fmt::format("{} x {} pixels", made.front().size(2), made.front().size(1));
    if (count > 1 && grid_) {
      int64_t columns = 1;
      while (columns * columns < count) ++columns;
      write_png(run.out, picture_grid(made, columns));
      run.say(fmt::format("{}  {} pictures of {}", run.out, count, size));
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const std::string path = numbered_path(run.out, i, count);
      write_png(path, picture_image(made[static_cast<size_t>(i)]));
      if (count > 1) write_text_beside(path, texts[static_cast<size_t>(i)]);
    }
    const std::string first = numbered_path(run.out, 0, count);
    run.say(count == 1 ? fmt::format("{}  {}", first, size)
                       : fmt::format("{} ...  {} pictures of {}", first, count, size));
  }

  muse::MaskGitPaths paths_, large_;
  std::string text_, texts_, negative_, image_, mask_, save_steps_, weights_ = "ema", precision_ = "fp32";
  int64_t count_ = 1, batch_ = 16;
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

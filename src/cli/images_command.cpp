#include "cli/images_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "cli/arguments.h"
#include "cli/machine_words.h"
#include "cli/terminal.h"
#include "config/nearest.h"
#include "core/base/error.h"
#include "data/base/picture_list.h"
#include "data/base/synth_pictures.h"
#include "io/base/picture_file.h"
#include "systems/muse/codec_pictures.h"
#include "systems/muse/load.h"

namespace melete {

namespace {

// What encode and eval are told of pictures and of the model.
struct ImageWords {
  std::string in, from, captions = "auto", caption_column = "text";
  int64_t height = 0, width = 0;
  MachineWords machine;

  void describe(Arguments& arguments) {
    arguments.word("pictures", in, "folder or list of pictures");
    arguments.option("from", from, "run folder or checkpoint of a VQ-GAN");
    arguments.option("height", height, "pictures are made this high; 0: as the VQ-GAN was trained")
        .at_least(0)
        .unit("pixels");
    arguments.option("width", width, "and this wide; 0: as high").at_least(0).unit("pixels");
    arguments.option("captions", captions, "of a folder, as in training").one_of({"auto", "text", "folder"});
    arguments.option("caption_column", caption_column, "of a list: where the caption stands");
    machine.describe(arguments);
  }

  std::vector<ManifestEntry> pictures() const {
    return load_pictures(in, captions_named(captions), caption_column);
  }

  muse::PictureEncoding encoding(c10::Device device) const {
    muse::PictureEncoding how;
    how.tokenizer = muse::open_picture_tokenizer(from, Weights::best, device);
    const auto size = muse::trained_size(from);
    how.prepare.height = height > 0 ? height : size.height;
    how.prepare.width = width > 0 ? width : height > 0 ? 0 : size.width;
    how.prepare.channels = how.tokenizer->channels();
    how.prepare.flip = false;
    return how;
  }
};

// A bar that appears with the first report.
class FileProgress {
 public:
  explicit FileProgress(std::string label) : label_(std::move(label)) {}
  ProgressCallback callback() {
    return [this](int64_t done, int64_t total) {
      if (!bar_) bar_.emplace(label_, total, "pictures");
      bar_->update(done);
    };
  }
  void print(const std::string& line) {
    if (bar_)
      bar_->print(line);
    else
      fmt::print(stderr, "{}\n", line);
  }
  muse::OnPictureProblem problems() {
    return [this](const std::string& path, const std::string& what) {
      print(fmt::format("melete: {}: {}", path, what));
    };
  }
  void finish() {
    if (bar_) bar_->finish();
  }

 private:
  std::string label_;
  std::optional<ProgressBar> bar_;
};

void say_damaged(int64_t pictures) {
  if (pictures > 0)
    fmt::print(stderr, "melete: {} of the pictures are damaged, and were used as far as they go\n", pictures);
}

void require_flag(const std::string& value, const char* message) {
  if (value.empty()) throw UsageError(message);
}

int images_encode_command(const std::vector<std::string>& args) {
  ImageWords words;
  std::string out, smaller_from;
  int64_t smaller_height = 0;
  Arguments arguments("images encode",
                      "pictures and captions to a folder of tokens, which `train maskgit` reads");
  words.describe(arguments);
  arguments.option("out", out, "folder of tokens; one that was begun is gone on with");
  arguments
      .option("smaller_height", smaller_height, "for super-resolution: the same pictures at this height, too")
      .at_least(0)
      .unit("pixels");
  arguments.option("smaller_from", smaller_from, "VQ-GAN of those; empty: the same one");
  arguments.alias("o", "out");
  arguments.example("images encode shapes --from runs/vqgan -o tokens");
  arguments.example("images encode photos --from runs/vqgan --height 512 --smaller_height 256 -o tokens");
  if (!arguments.parse(args)) return 0;
  require_flag(words.from, "--from is missing: a run folder or a checkpoint of vqgan");
  require_flag(out, "-o is missing: a folder of tokens");
  const c10::Device device = words.machine.start();

  muse::PictureEncoding how = words.encoding(device);
  how.smaller_height = smaller_height;
  if (smaller_height > 0)
    how.smaller = smaller_from.empty() ? how.tokenizer
                                       : muse::open_picture_tokenizer(smaller_from, Weights::best, device);
  FileProgress progress("encoding");
  const auto done =
      muse::encode_pictures(how, words.pictures(), out, progress.callback(), progress.problems());
  progress.finish();
  fmt::print("{}: {} pictures of {} x {}, {} tokens each of {} kinds\n", out,
             done.pictures + done.there_already, how.width(), how.prepare.height,
             how.tokenizer->tokens_of(how.prepare.height, how.width()), how.tokenizer->codebook_size());
  if (done.there_already > 0) fmt::print("{} of them were there already\n", done.there_already);
  say_damaged(done.damaged);
  if (done.left_out > 0) fmt::print(stderr, "melete: {} pictures could not be read\n", done.left_out);
  return done.left_out > 0 ? 1 : 0;
}

int images_decode_command(const std::vector<std::string>& args) {
  std::string in, out, from;
  MachineWords machine;
  Arguments arguments("images decode", "a folder of tokens to pictures");
  arguments.word("tokens", in, "folder of tokens that `images encode` made");
  arguments.option("from", from, "run folder or checkpoint of the VQ-GAN that encoded them");
  arguments.option("out", out, "folder of PNG files, in the tree that the pictures lay in");
  machine.describe(arguments);
  arguments.alias("o", "out");
  arguments.example("images decode tokens --from runs/vqgan -o decoded");
  if (!arguments.parse(args)) return 0;
  require_flag(from, "--from is missing: a run folder or a checkpoint of vqgan");
  require_flag(out, "-o is missing: a folder");
  const auto tokenizer = muse::open_picture_tokenizer(from, Weights::best, machine.start());
  FileProgress progress("decoding");
  const int64_t count = muse::decode_pictures(*tokenizer, in, out, progress.callback());
  progress.finish();
  fmt::print("{} pictures in {}\n", count, out);
  return 0;
}

int images_eval_command(const std::vector<std::string>& args) {
  ImageWords words;
  std::string grid;
  int64_t most = 200;
  Arguments arguments("images eval", "how well a VQ-GAN keeps pictures, beside JPEG and WebP");
  words.describe(arguments);
  arguments.option("most", most, "pictures to look at, spread over all").at_least(1);
  arguments.option("grid", grid, "also show the first ones, a row each, in this PNG");
  arguments.example("images eval shapes --from runs/vqgan --grid eval.png");
  if (!arguments.parse(args)) return 0;
  require_flag(words.from, "--from is missing: a run folder or a checkpoint of vqgan");
  const c10::Device device = words.machine.start();
  const auto all = words.pictures();
  std::vector<ManifestEntry> some;
  const auto count = static_cast<int64_t>(all.size());
  for (int64_t i = 0; i < std::min(most, count); ++i)
    some.push_back(all[static_cast<size_t>(i * count / std::min(most, count))]);
  FileProgress progress("measuring");
  const auto how = words.encoding(device);
  const muse::PictureEval eval = muse::eval_pictures(how, some, progress.callback(), 8, progress.problems());
  progress.finish();
  say_damaged(eval.damaged);
  TextTable table({"stored as", "bits a pixel", "PSNR dB", "SSIM"});
  for (const muse::PictureRate& rate : eval.rates)
    table.row({rate.name, fmt::format("{:.3f}", rate.bits_per_pixel), fmt::format("{:.2f}", rate.psnr),
               fmt::format("{:.3f}", rate.ssim)});
  fmt::print(
      "{} pictures of {} x {}\n\n{}\ncodes in use: {:.1f} % of those that could be, perplexity {:.1f}\n",
      eval.pictures, how.width(), how.prepare.height, table.text(), 100 * eval.code_use, eval.perplexity);
  if (grid.empty()) return 0;
  write_png(grid, picture_grid(eval.shown, eval.shown_columns));
  fmt::print("{}: the picture, then each of the rows above\n", grid);
  return 0;
}

int images_judge_command(const std::vector<std::string>& args) {
  std::string in;
  Arguments arguments(
      "images judge",
      "how often pictures show the colour and the shape of their captions, as `data synth --kind "
      "pictures` makes them; told from pixels");
  arguments.word("pictures", in, "folder of pictures with a .txt beside each");
  arguments.example("images judge made");
  if (!arguments.parse(args)) return 0;
  ShapesRight right;
  for (const ManifestEntry& entry : load_pictures(in, Captions::beside))
    right.add(read_picture(entry.path).image, entry.text);
  const double colour = 1.0 / static_cast<double>(synth_colours().size()),
               shape = 1.0 / static_cast<double>(synth_shape_names().size());
  TextTable table({"what is right", "pictures", "share", "by chance"});
  for (const auto& [name, count, chance] : {std::tuple{"colour", right.colour, colour},
                                            {"shape", right.shape, shape},
                                            {"both", right.both, colour * shape}})
    table.row(
        {name, fmt::format("{} of {}", count, right.pictures),
         fmt::format("{:.1f} %", 100.0 * static_cast<double>(count) / static_cast<double>(right.pictures)),
         fmt::format("{:.1f} %", 100 * chance)});
  fmt::print("{}", table.text());
  return 0;
}

struct ImagesCommand {
  const char* name;
  const char* help;
  int (*run)(const std::vector<std::string>&);
};
constexpr ImagesCommand kImagesCommands[] = {
    {"encode", "pictures to tokens", images_encode_command},
    {"decode", "tokens to pictures", images_decode_command},
    {"eval", "PSNR, SSIM and use of codes, beside JPEG and WebP", images_eval_command},
    {"judge", "whether pictures of shapes show what was asked for", images_judge_command},
};

}  // namespace

int images_command(const std::vector<std::string>& args) {
  std::vector<std::string> names;
  std::string help =
      "melete images: pictures as tokens of a VQ-GAN\n\nusage: melete images <command> [words] [options]\n\n";
  for (const ImagesCommand& command : kImagesCommands) {
    names.push_back(command.name);
    help += fmt::format("  {:<10}{}\n", command.name, command.help);
  }
  if (args.empty())
    throw UsageError("expected one of: images encode, images decode, images eval, images judge");
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
    fmt::print("{}\n`melete images <command> --help` shows what each one takes.\n", help);
    return 0;
  }
  for (const ImagesCommand& command : kImagesCommands)
    if (args[0] == command.name) return command.run({args.begin() + 1, args.end()});
  throw UsageError(fmt::format("unknown command 'images {}'; did you mean 'images {}'?",
                               args[0].substr(0, 80), nearest_word(args[0], names)));
}

}  // namespace melete

#include "systems/muse/codec_pictures.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/error.h"
#include "io/base/picture_file.h"
#include "losses/picture_quality.h"
#include "losses/quality.h"

namespace melete::muse {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kPicturesAtOnce = 16;
constexpr int64_t kPicturesPerShard = 256;

// [channels, height, width]; of a damaged file as much as there is of it
at::Tensor prepared(const std::string& path, const PicturePreparation& how, int64_t& damaged,
                    const OnPictureProblem& on_problem) {
  const Picture picture = read_picture(path);
  const at::Tensor made = picture_tensor(prepare_picture(picture.image, how, {}), how.channels);
  if (!picture.damaged) return made;
  ++damaged;
  if (on_problem) on_problem(path, "damaged, and used as far as it goes");
  return made;
}

// The folder that all of them lie in, however deep.
fs::path common_folder(const std::vector<Item>& items) {
  fs::path common = fs::path(items.front().words.at("path")).parent_path();
  for (const Item& item : items) {
    const fs::path folder = fs::path(item.words.at("path")).parent_path();
    while (!common.empty() && folder.lexically_relative(common).string().starts_with("..")) {
      if (common == common.parent_path()) break;
      common = common.parent_path();
    }
  }
  return common;
}

// A lossy format of others.
struct OtherFormat {
  const char* name;
  std::string (*encode)(const Image& image, int quality);
};
constexpr OtherFormat kOthers[] = {{"JPEG", encode_jpeg}, {"WebP", encode_webp}};

struct Stored {
  double bits_per_pixel, psnr, ssim;
  at::Tensor picture;  // [channels, height, width]
};

Stored stored_as(const OtherFormat& format, const at::Tensor& picture, int quality) {
  const std::string bytes = format.encode(picture_image(picture), quality);
  const at::Tensor shown = picture_tensor(decode_picture(bytes, format.name).image, picture.size(0));
  const at::Tensor real = picture.unsqueeze(0), fake = shown.unsqueeze(0);
  return {8.0 * static_cast<double>(bytes.size()) / static_cast<double>(picture.size(1) * picture.size(2)),
          psnr(real, fake).item<double>(), ssim(real, fake).item<double>(), shown};
}

// The highest quality that is `small` enough, or the lowest that there is; qualities are searched by halves.
template <class Small>
Stored best_that_is(const Small& small, const OtherFormat& format, const at::Tensor& picture) {
  int low = 0, high = 100;
  Stored best = stored_as(format, picture, low);
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    const Stored tried = stored_as(format, picture, middle);
    if (small(tried)) {
      low = middle;
      best = tried;
    } else {
      high = middle - 1;
    }
  }
  return best;
}

class PictureEvaluation {
 public:
  PictureEvaluation(const PictureEncoding& how, int64_t shown) : how_(how), most_shown_(shown) {
    const auto& tokenizer = *how.tokenizer;
    bits_per_pixel_ = static_cast<double>(tokenizer.tokens_of(how.prepare.height, how.width())) *
                      std::log2(static_cast<double>(tokenizer.codebook_size())) /
                      static_cast<double>(how.prepare.height * how.width());
    result_.rates.push_back({"tokens", 0, 0, 0});
    for (const OtherFormat& format : kOthers)
      for (const char* same : {"same size", "same PSNR"})
        result_.rates.push_back({fmt::format("{}, {}", format.name, same), 0, 0, 0});
  }

  void add(const at::Tensor& picture) {
    const at::Tensor tokens = how_.tokenizer->tokens(picture.unsqueeze(0));
    const at::Tensor made = how_.tokenizer->pictures(tokens, how_.prepare.height, how_.width()).clamp(0, 1);
    const at::Tensor real = picture.unsqueeze(0);
    const Stored own{bits_per_pixel_, psnr(real, made).item<double>(), ssim(real, made).item<double>(),
                     made[0]};
    tokens_.push_back(tokens);
    std::vector<Stored> all{own};
    for (const OtherFormat& format : kOthers) {
      all.push_back(best_that_is([&](const Stored& s) { return s.bits_per_pixel <= own.bits_per_pixel; },
                                 format, picture));
      all.push_back(best_that_is([&](const Stored& s) { return s.psnr <= own.psnr; }, format, picture));
    }
    for (size_t i = 0; i < all.size(); ++i) {
      result_.rates[i].bits_per_pixel += all[i].bits_per_pixel;
      result_.rates[i].psnr += all[i].psnr;
      result_.rates[i].ssim += all[i].ssim;
    }
    if (result_.pictures++ >= most_shown_) return;
    result_.shown.push_back(picture);
    for (const Stored& one : all) result_.shown.push_back(one.picture);
  }

  PictureEval finish() {
    for (PictureRate& rate : result_.rates)
      for (double* sum : {&rate.bits_per_pixel, &rate.psnr, &rate.ssim})
        *sum /= static_cast<double>(result_.pictures);
    const int64_t codebooks = how_.tokenizer->vae()->config().quantizer.codebooks;
    const at::Tensor by_book = at::cat(tokens_).view({-1, codebooks});
    for (int64_t book = 0; book < codebooks; ++book) {
      const CodeUse use = code_use(by_book.select(1, book), how_.tokenizer->codebook_size());
      result_.code_use += use.share.item<double>() / static_cast<double>(codebooks);
      result_.perplexity += use.perplexity.item<double>() / static_cast<double>(codebooks);
    }
    result_.shown_columns = 1 + static_cast<int64_t>(result_.rates.size());
    return std::move(result_);
  }

 private:
  const PictureEncoding& how_;
  int64_t most_shown_;
  double bits_per_pixel_;
  std::vector<at::Tensor> tokens_;
  PictureEval result_;
};

}  // namespace

TokenColumns PictureEncoding::columns() const {
  TokenColumns columns;
  columns.list.push_back({"tokens", tokenizer->identity(), tokenizer->codebook_size(), 0, 0, 0});
  columns.list.push_back({"grid", "", int64_t{1} << 15, 0, 0, 0});
  if (smaller) columns.list.push_back({"condition", smaller->identity(), smaller->codebook_size(), 0, 0, 0});
  return columns;
}

EncodedPictures encode_pictures(const PictureEncoding& how, const std::vector<ManifestEntry>& pictures,
                                const std::string& folder, const ProgressCallback& progress,
                                const OnPictureProblem& on_problem) {
  how.tokenizer->tokens_of(how.prepare.height, how.width());  // an Error where the sides do not fit
  std::vector<std::string> paths;
  for (const ManifestEntry& picture : pictures) paths.push_back(picture.path);
  const TokenFolderWriter writer(folder, how.columns(), paths, kPicturesPerShard);
  const int64_t step = how.tokenizer->pixels_per_token();
  const at::Tensor grid = at::tensor({how.prepare.height / step, how.width() / step}, at::kLong);
  const auto total = static_cast<int64_t>(pictures.size());
  EncodedPictures done;
  for (int64_t shard = 0; shard < writer.shards(); ++shard) {
    const int64_t end = writer.end_item(shard);
    if (writer.has(shard)) {
      done.there_already += end - writer.first_item(shard);
      if (progress) progress(end, total);
      continue;
    }
    std::vector<Item> items;
    for (int64_t begin = writer.first_item(shard); begin < end; begin += kPicturesAtOnce) {
      std::vector<at::Tensor> some;
      const size_t before = items.size();
      for (int64_t i = begin; i < std::min(end, begin + kPicturesAtOnce); ++i) {
        const ManifestEntry& picture = pictures[static_cast<size_t>(i)];
        try {
          some.push_back(prepared(picture.path, how.prepare, done.damaged, on_problem));
        } catch (const Error& error) {
          ++done.left_out;
          if (on_problem) on_problem(picture.path, fmt::format("left out: {}", error.what()));
          continue;
        }
        items.emplace_back().words = {{"path", picture.path}, {"text", picture.text}};
      }
      if (some.empty()) continue;
      const at::Tensor batch = at::stack(some), tokens = how.tokenizer->tokens(batch);
      const at::Tensor condition =
          how.smaller ? how.smaller->tokens(resized(batch, how.smaller_height, how.smaller_width()))
                      : at::Tensor();
      for (size_t i = before; i < items.size(); ++i) {
        const auto row = static_cast<int64_t>(i - before);
        items[i].add("tokens", tokens[row].clone());
        items[i].add("grid", grid);
        if (condition.defined()) items[i].add("condition", condition[row].clone());
      }
      if (progress) progress(std::min(end, begin + kPicturesAtOnce), total);
    }
    writer.write(shard, items);
    done.pictures += static_cast<int64_t>(items.size());
  }
  require(done.pictures + done.there_already > 0, "[images] none of the {} pictures can be read", total);
  return done;
}

int64_t decode_pictures(const PictureTokenizer& tokenizer, const std::string& tokens, const std::string& out,
                        const ProgressCallback& progress) {
  require(is_token_folder(tokens), "[images] {} is no folder of tokens; make one with `melete images encode`",
          tokens);
  const TokenColumn column = read_token_columns(tokens).require_column("tokens", tokens);
  require(column.identity == tokenizer.identity(),
          "[images] {} was encoded with another model ({}) than the one given ({}); try --from the one that "
          "encoded it",
          tokens, column.identity.substr(0, 12), tokenizer.identity().substr(0, 12));
  const std::vector<Item> items = read_token_items(tokens);
  const fs::path common = common_folder(items);
  const auto total = static_cast<int64_t>(items.size());
  const int64_t step = tokenizer.pixels_per_token();
  for (int64_t i = 0; i < total; ++i) {
    const Item& item = items[static_cast<size_t>(i)];
    const Item::Column *codes = item.find("tokens"), *grid = item.find("grid");
    require(grid != nullptr && grid->values.numel() == 2,
            "[images] {} does not say how large its pictures are", tokens);
    const at::Tensor sides = grid->values.to(at::kLong);
    const int64_t height = sides[0].item<int64_t>() * step, width = sides[1].item<int64_t>() * step;
    require(codes->values.numel() == tokenizer.tokens_of(height, width),
            "[images] {} is damaged: {} tokens for a picture of {} x {}", tokens, codes->values.numel(),
            width, height);
    const fs::path path = (fs::path(out) / fs::path(item.words.at("path")).lexically_relative(common))
                              .replace_extension(".png");
    fs::create_directories(path.parent_path());
    const at::Tensor picture = tokenizer.pictures(codes->values.to(at::kLong).unsqueeze(0), height, width)[0];
    write_png(path.string(), picture_image(picture.clamp(0, 1)));
    if (progress) progress(i + 1, total);
  }
  return total;
}

PictureEval eval_pictures(const PictureEncoding& how, const std::vector<ManifestEntry>& pictures,
                          const ProgressCallback& progress, int64_t shown,
                          const OnPictureProblem& on_problem) {
  PictureEvaluation evaluation(how, shown);
  int64_t done = 0, damaged = 0;
  for (const ManifestEntry& picture : pictures) {
    evaluation.add(prepared(picture.path, how.prepare, damaged, on_problem));
    if (progress) progress(++done, static_cast<int64_t>(pictures.size()));
  }
  PictureEval eval = evaluation.finish();
  eval.damaged = damaged;
  return eval;
}

}  // namespace melete::muse

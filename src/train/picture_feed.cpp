#include "train/picture_feed.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/base/picture_list.h"
#include "run/reporter.h"

namespace melete {

namespace {

std::vector<ManifestEntry> find_pictures(const std::string& from, const PicturesConfig& config,
                                         bool with_text, Reporter& reporter) {
  auto entries = load_pictures(from, captions_named(config.captions), config.caption_column);
  if (!with_text) return entries;
  const size_t all = entries.size();
  const size_t left_out =
      std::erase_if(entries, [](const ManifestEntry& entry) { return entry.text.empty(); });
  require(left_out < all, "[data] none of the {} pictures in {} has a caption, which this training needs",
          all, from);
  if (left_out > 0)
    reporter.note(
        fmt::format("{} of {} pictures in {} have no caption and are left out", left_out, all, from));
  return entries;
}

Collection pictures(std::vector<ManifestEntry> entries, const PicturesConfig& config, Reporter& reporter) {
  Collection result;
  if (entries.empty()) return result;
  for (const ManifestEntry& entry : entries) result.names.push_back(entry.path);
  result.description = fmt::format("{} pictures", entries.size());
  result.items = std::make_shared<PictureDataset>(
      std::move(entries), config, [&reporter](const std::string& path, const std::string& message) {
        reporter.warning(fmt::format("{}: {}", path, message));
      });
  return result;
}

}  // namespace

Feed open_pictures(const PicturesRecipe& recipe, const OpenRequest& request, const FeedOptions& options) {
  const auto find = [&](const std::string& from) {
    return find_pictures(from, recipe.data, options.with_text, request.reporter);
  };
  Split parts;
  if (recipe.valid_from.empty())
    parts = split(find(recipe.data_from), recipe.data.valid_fraction,
                  static_cast<uint64_t>(recipe.data.split_seed));
  else
    parts = {find(recipe.data_from), find(recipe.valid_from)};
  PicturesConfig held_out = recipe.data;
  held_out.prepare.flip = false;
  held_out.prepare.crop = "centre";
  return make_feed(recipe, recipe.data, pictures(std::move(parts.train), recipe.data, request.reporter),
                   pictures(std::move(parts.valid), held_out, request.reporter), request);
}

}  // namespace melete

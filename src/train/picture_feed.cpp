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

std::vector<Item> texted_tokens(const std::string& folder, const CheckColumns& check, Reporter& reporter) {
  require(is_token_folder(folder), "[data] {} is no folder of tokens; make one with `melete images encode`",
          folder);
  check(read_token_columns(folder), folder);
  auto items = read_token_items(folder);
  const size_t all = items.size();
  const size_t left_out =
      std::erase_if(items, [](const Item& item) { return item.words.at("text").empty(); });
  require(left_out < all, "[data] none of the {} pictures in {} has a caption, which this training needs",
          all, folder);
  if (left_out > 0)
    reporter.note(
        fmt::format("{} of {} pictures in {} have no caption and are left out", left_out, all, folder));
  return items;
}

Collection encoded(std::vector<Item> items, const TokenColumns& columns) {
  Collection result;
  if (items.empty()) return result;
  for (const Item& item : items) result.names.push_back(item.words.at("path"));
  result.description = fmt::format("tokens of {} pictures", items.size());
  result.items = std::make_shared<TokenDataset>(std::move(items), columns, 0);
  return result;
}

}  // namespace

Feed open_picture_tokens(const PicturesRecipe& recipe, const CheckColumns& check,
                         const OpenRequest& request) {
  TokenSplit parts;
  auto items = texted_tokens(recipe.data_from, check, request.reporter);
  if (recipe.valid_from.empty())
    parts = split_tokens(std::move(items), recipe.data.valid_fraction,
                         static_cast<uint64_t>(recipe.data.split_seed));
  else
    parts = {std::move(items), texted_tokens(recipe.valid_from, check, request.reporter)};
  const TokenColumns columns = read_token_columns(recipe.data_from);
  return make_feed(recipe, recipe.data, encoded(std::move(parts.train), columns),
                   encoded(std::move(parts.valid), columns), request);
}

Feed open_pictures(const PicturesRecipe& recipe, const OpenRequest& request, const FeedOptions& options) {
  require(!is_token_folder(recipe.data_from),
          "[data] {} is a folder of tokens, and `{}` trains on pictures; give the pictures themselves",
          recipe.data_from, recipe.name());
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

#include "train/feed.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/human.h"
#include "core/base/random.h"
#include "data/mixed_dataset.h"
#include "dist/group.h"
#include "run/reporter.h"
#include "train/mixed_feed.h"

namespace melete {

namespace {

constexpr size_t kSkippedNamed = 10;  // of a folder with many, the rest is only counted

// Every rank must train on the same items, whatever machine it is on.
void check_same_data(Group& group, const std::string& role, std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  uint64_t key = 0;
  for (const std::string& name : names) key = random_key(key, name);
  group.require_same(role + " data", fmt::format("{} items, list {:016x}", names.size(), key));
}

std::vector<ManifestEntry> find_recordings(const std::string& from, Reporter& reporter) {
  std::vector<SkippedFile> skipped;
  auto entries = load_entries(from, &skipped);
  for (size_t i = 0; i < std::min(skipped.size(), kSkippedNamed); ++i)
    reporter.warning(fmt::format("skipped {}: {}", skipped[i].path, skipped[i].reason));
  if (!skipped.empty())
    reporter.warning(
        fmt::format("{} of {} recordings in {} cannot be used; `melete data check {}` lists them",
                    skipped.size(), skipped.size() + entries.size(), from, from));
  return entries;
}

// Items of which nobody knows what is said.
template <class Entry, class Silent>
void leave_out_silent(std::vector<Entry>& entries, const std::string& from, Reporter& reporter,
                      const Silent& silent) {
  const size_t all = entries.size(), left_out = std::erase_if(entries, silent);
  require(left_out < all, "[data] none of the {} items of {} has a text, which this training needs", all,
          from);
  if (left_out > 0)
    reporter.note(fmt::format("{} of {} items in {} have no text and are left out", left_out, all, from));
}

// Those of which a text, or a tag, is there and says nothing.
void leave_out_wordless(std::vector<ManifestEntry>& entries, const std::string& from, Reporter& reporter,
                        const std::function<bool(const std::string&)>& has_words) {
  const size_t all = entries.size();
  size_t left_out = 0;
  std::erase_if(entries, [&](const ManifestEntry& entry) {
    std::vector<std::string> texts = entry.tags;
    if (!entry.text.empty()) texts.push_back(entry.text);
    const auto wordless = std::find_if_not(texts.begin(), texts.end(), has_words);
    if (wordless == texts.end()) return false;
    if (left_out++ < kSkippedNamed)
      reporter.warning(fmt::format("left out {}: its text `{}` has no words", entry.path, *wordless));
    return true;
  });
  require(left_out < all, "[data] none of the {} items of {} has a text with words", all, from);
  if (left_out > 0)
    reporter.warning(
        fmt::format("{} of {} items in {} have a text without words and are left out", left_out, all, from));
}

Collection recordings(std::vector<ManifestEntry> entries, const RecordingsConfig& config,
                      Reporter& reporter) {
  Collection result;
  if (entries.empty()) return result;
  double seconds = 0;
  for (const ManifestEntry& entry : entries) {
    seconds += entry.duration_seconds;
    result.names.push_back(entry.path);
  }
  result.seconds = seconds;
  result.description = fmt::format("{} files, {}", entries.size(), human_seconds(seconds));
  result.items = std::make_shared<AudioDataset>(
      std::move(entries), config, [&reporter](const std::string& path, const std::string& message) {
        reporter.warning(fmt::format("skipped {}: {}", path, message));
      });
  return result;
}

Collection tokens(std::vector<Item> items, const TokenColumns& columns, double segment_seconds) {
  Collection result;
  if (items.empty()) return result;
  for (const Item& item : items) result.names.push_back(item.words.at("path"));
  result.description = fmt::format("tokens of {} recordings", items.size());
  result.items = std::make_shared<TokenDataset>(std::move(items), columns, segment_seconds);
  return result;
}

// Both, of which `other` has a share of the items.
Collection mixed(const Collection& own, const Collection& other, double other_share) {
  const auto both = std::make_shared<MixedDataset>(
      std::vector<MixedPart>{{own.items, 1 - other_share}, {other.items, other_share}});
  Collection result{both, own.names, "", own.seconds + other.seconds};
  result.names.insert(result.names.end(), other.names.begin(), other.names.end());
  result.description = fmt::format("{}, and {} with {:g} % of the items", own.description, other.description,
                                   100 * other_share);
  return result;
}

// Samples of a segment mean nothing to tokens until it is known what they were made from.
double token_segment_seconds(const RecordingsConfig& data, const TokenColumns& columns,
                             const std::string& folder) {
  data.check_segment();
  if (data.segment_samples == 0) return data.segment_seconds;
  int64_t highest = 0;
  for (const TokenColumn& column : columns.list) highest = std::max(highest, column.rate_hz);
  require(
      highest > 0,
      "[data.segment_samples] {} does not say what rate its tokens were made at; give data.segment_seconds",
      folder);
  return static_cast<double>(data.segment_samples) / static_cast<double>(highest);
}

}  // namespace

Feed make_feed(const Recipe& recipe, const LoaderConfig& loader, Collection training, Collection validation,
               const OpenRequest& request) {
  Group& group = request.group;
  check_same_data(group, "training", training.names);
  check_same_data(group, "validation", validation.names);
  require(training.items != nullptr, "[data] nothing to train on in {}", recipe.data_from);
  Feed feed;
  feed.training_items = training.items->size();
  feed.training_seconds = training.seconds;
  feed.description = {"training: " + training.description, "validation: " + validation.description};
  if (validation.items == nullptr) {
    validation.items = training.items;
    feed.description.back() = "validation: on the training data, since nothing is held out";
  }
  BatchShare share;
  share.batch_size = recipe.batch_size;
  feed.validation = std::make_unique<BatchLoader>(validation.items, loader, request.seed, share);
  share.rank = static_cast<int>(group.rank());
  share.rank_count = static_cast<int>(group.size());
  share.split = recipe.train.dist.split_batches && !group.alone();
  feed.training = std::make_unique<BatchLoader>(training.items, loader, request.seed, share);
  return feed;
}

Feed open_recordings(const RecordingsRecipe& recipe, const OpenRequest& request, const FeedOptions& options) {
  require(!is_token_folder(recipe.data_from),
          "[data] {} is a folder of tokens, and `{}` trains on recordings; give the recordings themselves",
          recipe.data_from, recipe.name());
  const auto find = [&](const std::string& from) {
    auto entries = find_recordings(from, request.reporter);
    if (options.with_text)
      leave_out_silent(entries, from, request.reporter,
                       [](const ManifestEntry& entry) { return entry.text.empty() && entry.tags.empty(); });
    if (options.has_words) leave_out_wordless(entries, from, request.reporter, options.has_words);
    return entries;
  };
  auto entries = find(recipe.data_from);
  Split parts;
  if (!recipe.valid_from.empty()) {
    parts.train = std::move(entries);
    parts.valid = find(recipe.valid_from);
  } else {
    parts = split(entries, recipe.data.valid_fraction, static_cast<uint64_t>(recipe.data.split_seed));
  }
  return make_feed(recipe, recipe.data, recordings(std::move(parts.train), recipe.data, request.reporter),
                   recordings(std::move(parts.valid), recipe.data, request.reporter), request);
}

Feed open_tokens(const RecordingsRecipe& recipe, const CheckColumns& check, const OpenRequest& request,
                 const FeedOptions& options) {
  return open_tokens(recipe, check, request, options, {});
}

Feed open_tokens(const RecordingsRecipe& recipe, const CheckColumns& check, const OpenRequest& request,
                 const FeedOptions& options, const AlsoTokens& also) {
  const TokenColumns columns = read_token_columns(recipe.data_from);
  check(columns, recipe.data_from);
  const auto read = [&](const std::string& from) {
    auto items = read_token_items(from);
    if (options.with_text)
      leave_out_silent(items, from, request.reporter, [](const Item& item) {
        const auto text = item.words.find("text");
        return text == item.words.end() || text->second.empty();
      });
    return items;
  };
  // Another folder must hold what the first one does.
  const auto read_other = [&](const std::string& folder, const char* setting) {
    require(is_token_folder(folder), "[{}] expected a folder of tokens like data_from, got {}", setting,
            folder);
    const TokenColumns other = read_token_columns(folder);
    check(other, folder);
    for (const TokenColumn& column : columns.list)
      require(other.require_column(column.name, folder).identity == column.identity,
              "[{}] the {} tokens of {} were made by another model than those of {}", setting, column.name,
              folder, recipe.data_from);
    return read(folder);
  };
  TokenSplit parts;
  if (recipe.valid_from.empty())
    parts = split_tokens(read(recipe.data_from), recipe.data.valid_fraction,
                         static_cast<uint64_t>(recipe.data.split_seed));
  else
    parts = {read(recipe.data_from), read_other(recipe.valid_from, "valid_from")};
  const double seconds = token_segment_seconds(recipe.data, columns, recipe.data_from);
  Collection training = tokens(std::move(parts.train), columns, seconds);
  if (!also.folder.empty() && also.share > 0)
    training = mixed(training, tokens(read_other(also.folder, "data"), columns, seconds), also.share);
  return make_feed(recipe, recipe.data, std::move(training), tokens(std::move(parts.valid), columns, seconds),
                   request);
}

Feed mapped(Feed feed, const MappedBatches::Map& map) {
  feed.training = std::make_unique<MappedBatches>(std::move(feed.training), map);
  if (feed.validation) feed.validation = std::make_unique<MappedBatches>(std::move(feed.validation), map);
  return feed;
}

}  // namespace melete

// Pairs for the last training, made from speech that nobody has transcribed: a folder of tokens is read as
// text, shard by shard, and what was read badly is left out.
//
//   PAIRS/readings   every item with what was read, its score and its length ratio: resumable, made once
//   PAIRS            what the filter lets through, a token folder like any other: made anew in a moment
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "systems/spear_tts/load.h"

namespace melete {
class Schema;
}

namespace melete::spear_tts {

struct ReadingOptions {
  int64_t beams = 4;
  int64_t items_at_once = 8;
  int64_t items_per_shard = 64;
  double longest_ratio = 3;          // tokens of text for each semantic token, at most
  bool labelled = false;             // items that have a text are read, too; else they are left out
  int64_t rank = 0, rank_count = 1;  // of the processes that share the work: every so-many-th shard
  std::function<void(int64_t done, int64_t of)> progress = {};
};
void describe(Schema& schema, ReadingOptions& options);

struct ReadingResult {
  int64_t items = 0;     // read now, by this process
  int64_t already = 0;   // before
  int64_t labelled = 0;  // left out, since they have a text
};
// Reads the tokens of `folder`; goes on where an earlier call left off. An Error where that one had another
// model, other options or other items.
ReadingResult read_speech(Reader& reader, const std::string& folder, const std::string& pairs,
                          const ReadingOptions& options);

struct PairFilter {
  double least_score = -0.5;   // log probability of a token of text, in the mean
  double length_factor = 1.8;  // the length ratio may be so many times the median one, or so many times less
  double most_repeated = 0.3;  // share of a text that is one passage three times or more in a row
};
void describe(Schema& schema, PairFilter& filter);

struct FilterReport {
  int64_t all = 0, kept = 0;
  std::vector<std::pair<std::string, int64_t>> dropped;  // why, and how many
  std::vector<std::pair<std::string, double>> scores;    // "median", ...: quantiles over all
  double median_ratio = 0;                               // characters of text for each semantic token
  // Where the speech had a text: how far what was read is from it, in all and in what was kept.
  int64_t labelled = 0;
  double character_error = 0, kept_character_error = 0;
};
FilterReport filter_pairs(const std::string& pairs, const PairFilter& filter);

// The largest share of a text that is one passage three times or more in a row: "no no no no" is all of it.
double repeated_share(const std::string& text);

// spear-tts-pytorch's folder of generated pairs (0.pt, 1.pt, ...) from and to a folder of tokens. The
// reader's text tokenizer says what its ids of text mean.
struct RowsOptions {
  int64_t delimiter = -1;
  int64_t items_per_shard = 64;
};
int64_t write_rows(Reader& reader, const std::string& pairs, const std::string& rows,
                   const RowsOptions& options);
int64_t read_rows(Reader& reader, const std::string& rows, const std::string& pairs,
                  const RowsOptions& options);

}  // namespace melete::spear_tts

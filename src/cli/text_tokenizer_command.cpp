#include "cli/text_tokenizer_command.h"

#include <fmt/format.h>

#include <fstream>

#include "cli/arguments.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "data/base/bpe_trainer.h"
#include "data/base/manifest.h"
#include "data/base/sentencepiece.h"
#include "data/base/unigram_trainer.h"
#include "io/base/atomic_file.h"

namespace melete {

namespace {

// Lines of a text file, or the texts of recordings.
std::vector<std::string> texts_of(const std::string& from) {
  std::vector<std::string> texts;
  if (from.ends_with(".txt")) {
    std::ifstream file(from);
    require(file.good(), "[data text-tokenizer] cannot read {}", from);
    for (std::string line; std::getline(file, line);) texts.push_back(line);
    return texts;
  }
  for (const ManifestEntry& entry : load_entries(from))
    if (!entry.text.empty()) texts.push_back(entry.text);
  require(!texts.empty(), "[data text-tokenizer] none of the recordings of {} has a text", from);
  return texts;
}

}  // namespace

int text_tokenizer_command(const std::vector<std::string>& args) {
  std::string from, out = "text.model";
  std::string kind = "unigram";
  UnigramConfig config;
  Arguments arguments(
      "data text-tokenizer",
      "fits pieces of words to texts: a SentencePiece model for text.tokenizer sentencepiece");
  arguments.word("data", from, "manifest or folder of recordings with texts, or a .txt file of lines");
  arguments.option("kind", kind, "unigram: the likeliest pieces; bpe: pairs that stand together most often")
      .one_of({"unigram", "bpe"});
  arguments.option("vocab", config.vocabulary, "pieces, with padding, end and unknown")
      .at_least(4)
      .at_most(1e6);
  arguments.option("byte_fallback", config.byte_fallback,
                   "256 pieces more for characters that the texts do not have; else those are unknown");
  arguments.option("longest", config.longest_piece, "of a piece").at_least(1).unit("characters");
  arguments.option("out", out, "file to write");
  arguments.alias("o", "out");
  arguments.example("data text-tokenizer speech.jsonl --vocab 512 -o text.model");
  arguments.example("data text-tokenizer lines.txt --kind bpe --vocab 2000 -o text.model");
  if (!arguments.parse(args)) return 0;
  if (!out.ends_with(".model"))
    throw UsageError(fmt::format("--out expected a name that ends with .model, got `{}`", out));
  const std::vector<std::string> texts = texts_of(from);
  const PieceFit fit =
      kind == "bpe"
          ? fit_bpe(texts, config)
          : fit_unigram(texts, config, [](int64_t pieces) { fmt::print(stderr, "{} pieces\n", pieces); });
  const SentencePieceModel model(fit.model, out);  // what we write, we can read
  write_file_atomically(out, fit.model);
  fmt::print("{} texts, {} words, {} of them different, {} different characters\n", texts.size(), fit.words,
             fit.distinct_words, fit.characters);
  if (model.size() < config.vocabulary)
    fmt::print("the texts do not have {} pieces worth keeping: there are {}\n", config.vocabulary,
               model.size());
  fmt::print(
      "{}: {} pieces, {:.2f} for a word; train with --text.tokenizer sentencepiece --text.sentencepiece {}\n",
      out, model.size(), fit.pieces_a_word, out);
  return 0;
}

}  // namespace melete

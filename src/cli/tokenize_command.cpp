#include "cli/tokenize_command.h"

#include <fmt/format.h>

#include "cli/arguments.h"
#include "cli/machine_words.h"
#include "cli/terminal.h"
#include "core/base/error.h"
#include "roles/open.h"
#include "roles/tokenizers.h"

namespace melete {

int tokenize_command(const std::vector<std::string>& args) {
  std::string from, out, semantic, codec, text, joint;
  MachineWords machine;
  TokenizeOptions options;
  Arguments arguments("data tokenize",
                      "makes the tokens of all recordings once, for semantic, coarse and fine");
  arguments.word("data", from, "folder of recordings or manifest");
  arguments.option("out", out, "folder for the tokens; begun ones are finished");
  arguments.option("semantic", semantic, "semantic tokenizer: what `melete train kmeans` or import wrote");
  arguments.option("codec", codec, "codec: a run, a checkpoint, or an imported EnCodec");
  arguments.option("text_encoder", text,
                   "also the recordings' texts as its features: what `melete import t5` wrote");
  arguments.option("joint", joint, "joint embedding: a run of mulan, for MusicLM's stages");
  arguments.option("files_per_shard", options.files_per_shard, "recordings in one file of tokens")
      .at_least(1);
  machine.describe(arguments);
  arguments.alias("o", "out");
  arguments.example("data tokenize recordings --semantic runs/kmeans --codec runs/codec -o tokens");
  if (!arguments.parse(args)) return 0;
  if (out.empty()) throw UsageError("expected -o FOLDER, got none; for example -o tokens");
  if (semantic.empty() && codec.empty() && joint.empty())
    throw UsageError("nothing to make; give --semantic TOKENIZER, --codec CODEC, --joint MULAN, or several");
  const c10::Device device = machine.start();

  Tokenizers tokenizers;
  if (!semantic.empty()) tokenizers.semantic = open_semantic_tokenizer(semantic, device);
  if (!codec.empty()) tokenizers.codec = open_codec(codec, Weights::best, device);
  if (!text.empty()) tokenizers.text = open_text_encoder(text, device);
  if (!joint.empty()) tokenizers.joint = open_joint_embedding(joint, device);
  std::vector<SkippedFile> skipped;
  const auto entries = load_entries(from, &skipped);
  for (const SkippedFile& file : skipped)
    fmt::print(stderr, "melete: skipped {}: {}\n", file.path, file.reason);
  require(!entries.empty(), "[data tokenize] no usable recordings in {}", from);

  ProgressBar bar("tokenizing", static_cast<int64_t>(entries.size()), "files");
  options.progress = [&](int64_t done, int64_t) { bar.update(done); };
  options.on_failure = [&](const std::string& path, const std::string& message) {
    bar.print(fmt::format("skipped {}: {}", path, message));
  };
  const TokenizeResult result = tokenize_recordings(entries, tokenizers, out, options);
  bar.finish();
  fmt::print("{} recordings tokenized", result.files);
  if (result.already > 0) fmt::print(", {} were there already", result.already);
  const auto unusable = result.failed + static_cast<int64_t>(skipped.size());
  if (unusable > 0) fmt::print(", {} skipped", unusable);
  fmt::print(" in {}\n", out);
  require(result.files + result.already > 0, "[data tokenize] none of the recordings could be tokenized");
  return 0;
}

}  // namespace melete

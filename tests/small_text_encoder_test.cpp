// The text encoder that is trained with the model it conditions: alone, in training, and out of a checkpoint.
#include "nn/small_text_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <filesystem>

#include "base/temporary_folder.h"
#include "cli/app.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "foreign_files.h"
#include "io/base/audio_file.h"
#include "nn/draws.h"
#include "run/run_folder.h"
#include "small_codec.h"
#include "systems/audiolm/load.h"
#include "systems/audiolm/task.h"
#include "systems/foreign.h"
#include "token_batches.h"
#include "train/trainer.h"

namespace melete {
namespace small_text_encoder_test {

using namespace testing;
using ::testing::HasSubstr;

const std::string kPieces = std::string(MELETE_SOURCE_DIR) + "/tests/base/sentencepiece/spiece.model";

SmallTextEncoderConfig small(const std::string& tokenizer = "bytes") {
  SmallTextEncoderConfig config;
  config.tokenizer = tokenizer;
  config.sentencepiece = tokenizer == "sentencepiece" ? kPieces : "";
  config.dim = 24;
  config.depth = 2;
  config.heads = 3;
  config.head_dim = 8;
  return config;
}

TEST(SmallTextEncoder, PaddingAndCompanyChangeNothing) {
  for (const std::string tokenizer : {"bytes", "sentencepiece"}) {
    torch::manual_seed(1);
    SmallTextEncoder encoder(small(tokenizer));
    const std::vector<std::string> texts = {"a slow march in c minor", "", "drums", "fast waltz with flute"};
    const TextEmbeddings all = encoder(texts);
    EXPECT_EQ(all.embeddings.sizes(), (std::vector<int64_t>{4, all.mask.size(1), 24}));
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      const TextEmbeddings alone = encoder(std::vector<std::string>{texts[i]});
      const int64_t tokens = alone.mask.size(1);
      EXPECT_EQ(all.mask[row].sum().item<int64_t>(), tokens);
      EXPECT_TRUE(at::allclose(all.embeddings[row].narrow(0, 0, tokens), alone.embeddings[0], 1e-4, 1e-5))
          << tokenizer << ": " << texts[i];
      EXPECT_EQ(all.embeddings[row].narrow(0, tokens, all.mask.size(1) - tokens).abs().sum().item<double>(),
                0);
    }
  }
}

TEST(SmallTextEncoder, SeesBothWaysAndTheOrder) {
  for (const int64_t head_dim : {8, 32}) {  // without and with the attention kernel
    torch::manual_seed(1);
    SmallTextEncoderConfig config = small();
    config.head_dim = head_dim;
    SmallTextEncoder encoder(config);
    const auto first = [&](const std::string& text) {
      return encoder(std::vector<std::string>{text}).embeddings[0][0].detach();
    };
    // The first byte knows what comes last, and which of two came first.
    EXPECT_GT((first("abcd") - first("abce")).abs().max().item<double>(), 1e-5);
    EXPECT_GT((first("abcd") - first("acbd")).abs().max().item<double>(), 1e-5);
  }
}

TEST(SmallTextEncoder, GradientsReachEveryWeight) {
  torch::manual_seed(1);
  SmallTextEncoder encoder(small());
  encoder(std::vector<std::string>{"up", "down and up"}).embeddings.square().sum().backward();
  for (const auto& item : encoder->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().sum().item<double>(), 0) << item.key();
  }
  // A byte that no text has is not moved; one that a text has is.
  const at::Tensor rows = encoder->embedding->weight.grad().abs().sum(1);
  EXPECT_GT(rows['u' + 2].item<double>(), 0);
  EXPECT_EQ(rows['z' + 2].item<double>(), 0);
}

TEST(SmallTextEncoder, RefusesWhatItCannotUse) {
  SmallTextEncoderConfig config = small("sentencepiece");
  config.sentencepiece = "/nowhere/spiece.model";
  EXPECT_THAT(error_of([&] { SmallTextEncoder encoder(config); }), HasSubstr("no such SentencePiece model"));
  config.sentencepiece.clear();
  EXPECT_THAT(error_of([&] { SmallTextEncoder encoder(config); }), HasSubstr("text.tokenizer bytes"));
  EXPECT_THAT(error_of([&] { take_pieces(config, {}, "model.text_encoder.pieces", "x"); }),
              HasSubstr("pieces"));
  EXPECT_THAT(error_of([&] {
                take_pieces(config, {{"p", at::full({40}, 7, at::kByte)}}, "p", "x");
                SmallTextEncoder encoder(config);
              }),
              HasSubstr("text tokenizer"));
  StageConfig stage;
  stage.text = small();
  EXPECT_THAT(error_of([&] { StageImpl model(stage); }), HasSubstr("conditioned"));
}

// What a caption says decides how a sequence goes on: by how many notes it climbs.
constexpr int64_t kNotes = 12;
const std::vector<std::string> kCaptions = {"by one", "by two", "up three", "by five", "a fourth"};

// Every caption from every first note.
std::vector<Item> captioned(int64_t count, int64_t length) {
  std::vector<Item> items;
  const std::vector<int64_t> climbs = {1, 2, 3, 5, 4};
  for (int64_t i = 0; i < count; ++i) {
    const auto which = static_cast<size_t>(i) % climbs.size();
    const at::Tensor semantic = (at::arange(length, at::kLong) * climbs[which] + i / 5).remainder(kNotes);
    items.push_back(token_item(std::to_string(i), semantic, at::stack({semantic, semantic, semantic}, 1),
                               kCaptions[which]));
  }
  return items;
}

TokenColumns info() {
  return token_columns(kNotes, kNotes, 3, 10, "notes");
}

TEST(SmallTextEncoder, CaptionsAreLearnedThroughIt) {
  for (const std::string condition : {"cross", "prefix"}) {
    torch::manual_seed(1);
    SemanticConfig config;
    config.semantic_tokens = kNotes;
    config.stage.transformer = {48, 2, 4, 16, condition};
    config.stage.condition_drop = 0.2;
    config.stage.text = small();
    config.stage.text_dim = config.stage.text.dim;
    StageTaskConfig how;
    how.phase.optimiser.learning_rate = 3e-3;
    SemanticTask task(config, how, {});
    TokenBatches training(captioned(60, 4), info(), 0, 15, 1), measured(captioned(60, 4), info(), 0, 60, 2);
    TrainerConfig trainer_config;
    trainer_config.steps = 250;
    trainer_config.ema.enabled = false;
    const at::Tensor table = task.stage().text_encoder->embedding->weight.detach().clone();
    Trainer trainer({task, training}, trainer_config);
    for (int64_t step = 0; step < trainer_config.steps; ++step) trainer.step();
    EXPECT_FALSE(at::equal(table, task.stage().text_encoder->embedding->weight));

    const at::NoGradGuard no_grad;
    task.model().eval();
    const Batch batch = measured.batch(0);
    const auto loss = [&](const std::vector<std::string>& texts) {
      StageInput input;
      input.semantic = batch["semantic"];
      input.forget = false;
      input.condition = task.stage().condition(texts, {});
      return semantic_losses(task.transformer(), input, {}).total.item<double>();
    };
    std::vector<std::string> wrong = batch.words("text");
    std::rotate(wrong.begin(), wrong.begin() + 1, wrong.end());
    // Without a caption the first note and the first climb have to be guessed: (ln 12 + ln 5) of 5 tokens.
    const double with = loss(batch.words("text")), without = loss(std::vector<std::string>(60, "")),
                 misled = loss(wrong);
    std::printf("%s: %.2f with captions, %.2f without, %.2f with wrong ones\n", condition.c_str(), with,
                without, misled);
    EXPECT_LT(with, 0.75) << condition;
    EXPECT_GT(without, with + 0.2) << condition;
    EXPECT_GT(misled, with + 0.4) << condition;
  }
}

// A folder of tokens with captions, as `melete data tokenize` leaves it.
std::string write_token_folder(const TemporaryFolder& folder) {
  const std::string path = folder.path() + "/tokens";
  TensorMap tensors;
  auto listed = nlohmann::ordered_json::array();
  const auto items = captioned(10, 6);
  for (size_t i = 0; i < items.size(); ++i) {
    for (const Item::Column& column : items[i].columns)
      tensors[fmt::format("{}.{}", i, column.name)] = column.values.to(at::kShort);
    listed.push_back(items[i].words);
  }
  std::filesystem::create_directories(path);
  write_bytes(path + "/tokens.json", info().json().dump());
  write_tensors(path + "/shard_00000.safetensors", tensors, {{"items", listed.dump()}});
  return path;
}

std::vector<std::string> train_words(const std::string& what, const std::string& tokens,
                                     const std::string& out, const std::string& steps) {
  return {"train",
          what,
          "--data",
          tokens,
          "--out",
          out,
          "--steps",
          steps,
          "--batch_size",
          "4",
          "--data.valid_fraction",
          "0",
          "--data.segment_seconds",
          "0",
          "--threads",
          "1",
          "--train.ema.enabled",
          "true",
          "--model.dim",
          "32",
          "--model.depth",
          "1",
          "--model.heads",
          "2",
          "--model.head_dim",
          "8",
          "--model.condition",
          "cross",
          "--model.text.dim",
          "16",
          "--model.text.depth",
          "1",
          "--model.text.heads",
          "2",
          "--model.text.head_dim",
          "8"};
}

TEST(SmallTextEncoder, ResumeIsBitForBit) {
  TemporaryFolder folder;
  const std::string tokens = write_token_folder(folder);
  for (const std::string what : {"semantic", "coarse", "fine"}) {
    const std::string whole = folder.path() + "/whole-" + what, parts = folder.path() + "/parts-" + what;
    auto words = [&](const std::string& out, const std::string& steps) {
      auto result = train_words(what, tokens, out, steps);
      if (what == "coarse") result.insert(result.end(), {"--model.quantizers", "2"});
      if (what == "fine") result.insert(result.end(), {"--model.coarse_quantizers", "2"});
      return result;
    };
    ASSERT_EQ(run_program(words(whole, "4")), 0);
    ASSERT_EQ(run_program(words(parts, "2")), 0);
    ASSERT_EQ(run_program({"train", what, "--out", parts, "--resume", "--steps", "4"}), 0);
    const Checkpoint a = latest_usable(whole, [](const std::string&) {})->checkpoint;
    const Checkpoint b = latest_usable(parts, [](const std::string&) {})->checkpoint;
    bool moments = false, average = false;
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (const auto& [name, tensor] : a.tensors) {
      EXPECT_TRUE(at::equal(tensor, b.tensors.at(name))) << what << " " << name;
      moments |= name.starts_with("optimiser.transformer.text_encoder.");
      average |= name.starts_with("ema.average.text_encoder.");
    }
    EXPECT_TRUE(moments && average);
    // Another tokenizer would give other ids.
    auto other = words(parts, "5");
    other.insert(other.end(), {"--resume", "--model.text.tokenizer", "sentencepiece",
                               "--model.text.sentencepiece", kPieces});
    EXPECT_EQ(run_program(other), 1);
  }
}

TEST(SmallTextEncoder, ResumeAndGenerationNeedTheCheckpointsAlone) {
  TemporaryFolder folder;
  const std::string tokens = write_token_folder(folder);
  std::filesystem::create_directories(folder.path() + "/runs");
  const std::string pieces = folder / "spiece.model";
  std::filesystem::copy_file(kPieces, pieces);
  auto words = train_words("semantic", tokens, folder / "runs/semantic", "1");
  words.insert(words.end(),
               {"--model.text.tokenizer", "sentencepiece", "--model.text.sentencepiece", pieces});
  ASSERT_EQ(run_program(words), 0);
  words = train_words("coarse", tokens, folder / "runs/coarse", "1");
  words.insert(words.end(), {"--model.quantizers", "2"});
  ASSERT_EQ(run_program(words), 0);
  std::filesystem::remove(pieces);
  ASSERT_EQ(run_program({"train", "semantic", "--out", folder / "runs/semantic", "--resume", "--steps", "2"}),
            0);

  auto settings = small_codec_settings();
  settings["model"]["codec"]["quantizer"] = {{"quantizers", 3}, {"codebook_size", kNotes}};
  save_checkpoint(folder / "codec.safetensors", small_codec_checkpoint(1, settings));
  std::vector<float> noise(16000);
  Rng rng(1);
  for (float& sample : noise) sample = static_cast<float>(0.3 * rng.normal());
  write_audio(folder / "in/noise.wav", noise, 8000);
  ASSERT_EQ(
      run_program({"train", "kmeans", "--features", "mfcc", "--clusters", std::to_string(kNotes), "--data",
                   folder.path() + "/in", "-o", folder / "tokenizer.safetensors", "--threads", "1"}),
      0);
  // The tokens were made by nothing, so their names are taken out; the text encoders stay.
  AudioLmPaths paths;
  for (const std::string what : {"semantic", "coarse"}) {
    Checkpoint checkpoint = latest_usable(folder / ("runs/" + what), [](const std::string&) {})->checkpoint;
    for (const char* name : {"semantic_identity", "codec_identity"})
      if (checkpoint.meta["config"].contains(name)) checkpoint.meta["config"][name] = "";
    save_checkpoint(folder / (what + ".safetensors"), checkpoint);
    export_checkpoint(folder / (what + ".safetensors"), folder / ("slim/" + what + ".safetensors"),
                      {ExportFor::inference});
  }
  const auto generate_with = [&](const std::string& text) {
    std::vector<std::string> line = {"generate",    "audiolm",
                                     "--semantic",  folder / "slim/semantic.safetensors",
                                     "--coarse",    folder / "slim/coarse.safetensors",
                                     "--tokenizer", folder / "tokenizer.safetensors",
                                     "--codec",     folder / "codec.safetensors",
                                     "--seconds",   "0.2",
                                     "--threads",   "1",
                                     "-o",          folder / "out.wav"};
    if (!text.empty()) line.insert(line.end(), {"--text", text});
    return run_program(line);
  };
  EXPECT_EQ(generate_with("by five"), 0);
  const auto first = read_audio(folder / "out.wav").samples;
  EXPECT_EQ(generate_with("something else entirely"), 0);
  EXPECT_NE(first, read_audio(folder / "out.wav").samples);
  EXPECT_EQ(generate_with(""), 1);

  const auto notes =
      export_checkpoint(folder / "coarse.safetensors", folder / "coarse.pt", {ExportFor::inference});
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("text encoder stays behind")));
  for (const auto& entry : content(folder / "coarse.pt").at("model").at("$ordered"))
    EXPECT_FALSE(entry[0].get<std::string>().starts_with("text_encoder")) << entry[0];
}

}  // namespace small_text_encoder_test
}  // namespace melete

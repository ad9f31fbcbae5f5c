// A joint embedding as a tool: folders of vectors that survive a kill, exact search, labels, tables, stories.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>

#include "base/temporary_folder.h"
#include "core/base/error.h"
#include "data/word_tokenizer.h"
#include "io/base/audio_file.h"
#include "io/npy.h"
#include "nn/codebook.h"
#include "systems/musiclm/embed.h"
#include "systems/musiclm/evaluate.h"
#include "systems/musiclm/long_piece.h"
#include "systems/musiclm/search.h"
#include "systems/musiclm/zero_shot.h"
#include "toy_embedding.h"

namespace melete::musiclm {
namespace musiclm_tool_test {

using ::melete::testing::read_bytes;
using ::melete::testing::TemporaryFolder;
using ::melete::testing::ToyEmbedding;
using ::testing::HasSubstr;

void write_recordings(const TemporaryFolder& folder, int first, int end) {
  for (int i = first; i < end; ++i) {
    std::vector<float> samples(static_cast<size_t>(400 + 20 * i));
    for (size_t at = 0; at < samples.size(); ++at)
      samples[at] = 0.5f * static_cast<float>(std::sin(static_cast<double>(at * (i + 1)) / 900.0));
    write_audio(folder / fmt::format("in/{:02}.wav", i), samples, 8000);
  }
}

TEST(Embed, AKilledRunGoesOnAndGivesTheSame) {
  TemporaryFolder folder;
  write_recordings(folder, 0, 11);
  const auto entries = load_entries(folder.path() + "/in");
  EmbedOptions options;
  options.batch = 2;
  options.save_every = 4;
  ToyEmbedding whole, killed, on;
  embed_recordings(whole, entries, folder.path() + "/whole", options);
  killed.dies_at = 4;  // six are done by then, four are saved
  EXPECT_THROW(embed_recordings(killed, entries, folder.path() + "/parts", options), Error);
  EXPECT_THROW(read_embeddings(folder.path() + "/parts"), Error);
  const EmbedResult result = embed_recordings(on, entries, folder.path() + "/parts", options);
  EXPECT_EQ(result.already, 4);
  EXPECT_EQ(result.made, 7);
  EXPECT_EQ(on.items, 7);
  const Embeddings a = read_embeddings(folder.path() + "/whole"),
                   b = read_embeddings(folder.path() + "/parts");
  EXPECT_TRUE(at::equal(a.vectors, b.vectors));
  ASSERT_EQ(b.items.size(), 11u);
  EXPECT_THAT(b.items[3].path, HasSubstr("03.wav"));
  EXPECT_EQ(read_bytes(folder / "whole/embeddings.npy"), read_bytes(folder / "parts/embeddings.npy"));
  EXPECT_FALSE(std::filesystem::exists(folder / "parts/parts"));
  // Once more: nothing is left to do.
  ToyEmbedding idle;
  EXPECT_EQ(embed_recordings(idle, entries, folder.path() + "/parts", options).already, 11);
  EXPECT_EQ(idle.calls, 0);
}

TEST(Embed, AGrownCollectionIsEmbeddedWhereItIsNew) {
  TemporaryFolder folder;
  write_recordings(folder, 0, 5);
  ToyEmbedding first, more, all;
  embed_recordings(first, load_entries(folder.path() + "/in"), folder.path() + "/out", {});
  write_recordings(folder, 5, 8);
  const EmbedResult result =
      embed_recordings(more, load_entries(folder.path() + "/in"), folder.path() + "/out", {});
  EXPECT_EQ(result.already, 5);
  EXPECT_EQ(more.items, 3);
  embed_recordings(all, load_entries(folder.path() + "/in"), folder.path() + "/anew", {});
  EXPECT_TRUE(at::allclose(read_embeddings(folder.path() + "/out").vectors,
                           read_embeddings(folder.path() + "/anew").vectors, 0, 1e-6));
}

TEST(Embed, OtherModelsAndBrokenRecordingsAreSaid) {
  TemporaryFolder folder;
  write_recordings(folder, 0, 3);
  auto entries = load_entries(folder.path() + "/in");
  entries[1].path += ".gone";
  std::vector<std::string> failures;
  EmbedOptions options;
  options.on_failure = [&](const std::string& path, const std::string&) { failures.push_back(path); };
  ToyEmbedding toy, other;
  const EmbedResult result = embed_recordings(toy, entries, folder.path() + "/out", options);
  EXPECT_EQ(result.failed, 1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(read_embeddings(folder.path() + "/out").items.size(), 2u);
  other.name = "toy 2";
  EXPECT_THROW(embed_recordings(other, entries, folder.path() + "/out", options), Error);
  try {
    embed_texts(toy, {{"", "abc", 0}}, folder.path() + "/out", options);
    FAIL() << "sound and texts in one folder";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("holds embeddings of audio by the model toy 1, these are of text by toy 1"));
  }
  EXPECT_THROW(read_embeddings(folder.path() + "/nowhere"), Error);
}

TEST(Npy, IsWhatNumpyWrites) {
  TemporaryFolder folder;
  write_npy(folder / "x.npy", at::arange(6, at::kFloat).view({2, 3}));
  const std::string bytes = read_bytes(folder / "x.npy");
  ASSERT_EQ(bytes.size(), 128u + 24);
  EXPECT_EQ(bytes.substr(1, 5), "NUMPY");
  EXPECT_THAT(bytes, HasSubstr("'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, ), }"));
  EXPECT_EQ(bytes[127], '\n');
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 4, 4);
  EXPECT_EQ(last, 5);
}

TEST(Search, EqualsBruteForce) {
  const at::Tensor vectors = unit_vectors(at::randn({700, 24}));
  vectors[13].copy_(vectors[400]);  // equally near: the first row comes first
  for (int64_t query = 390; query < 410; ++query) {
    const auto found = nearest(vectors, vectors[query], 25);
    std::vector<std::pair<double, int64_t>> all;
    for (int64_t row = 0; row < 700; ++row)
      all.emplace_back(-vectors[row].dot(vectors[query]).item<float>(), row);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first - 1e-6; });
    ASSERT_EQ(found.size(), 25u);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i].score, -all[i].first, 1e-5);
      EXPECT_LE(found[i].score, found[i == 0 ? 0 : i - 1].score);
    }
    EXPECT_EQ(found.front().row, query == 400 ? 13 : query);
  }
  EXPECT_EQ(nearest(vectors, vectors[0], 10000).size(), 700u);
  EXPECT_THROW(nearest(vectors, at::zeros({23}), 1), Error);
}

// Milliseconds; the limit leaves room for a machine that is busy and slow.
TEST(Search, AHundredThousandRowsTakeMilliseconds) {
  const at::Tensor vectors = at::randn({100000, 128}), query = unit_vectors(at::randn({128}));
  nearest(vectors, query, 10);
  const std::clock_t begin = std::clock();
  for (int i = 0; i < 5; ++i) ASSERT_EQ(nearest(vectors, query, 10).size(), 10u);
  const double milliseconds = 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / 5;
  std::printf("  100,000 rows: %.1f ms of CPU time\n", milliseconds);
  EXPECT_LT(milliseconds, 100);
}

TEST(ZeroShot, NamesTheNearestLabel) {
  const ToyEmbedding toy;
  const ZeroShot labels(toy, {"a", "b", "dd"}, {"{}", "{}{}"}, 10);
  const at::Tensor shares = labels.probabilities(toy.embed_text({"aab", "bbb", "d"}));
  EXPECT_TRUE(at::allclose(shares.sum(1), at::ones({3})));
  EXPECT_TRUE(at::equal(shares.argmax(1), at::tensor({0, 1, 2}, at::kLong)));
  EXPECT_THROW(ZeroShot(toy, {"a"}, {"{}"}, 1), Error);
  EXPECT_THROW(ZeroShot(toy, {"a", "b"}, {"the sound of"}, 1), Error);
}

TEST(Evaluate, TablesCountWhatTheyShould) {
  const ToyEmbedding toy;
  EvaluatedPairs pairs;
  for (const char* text : {"a", "b", "c", "d", "a b", "c d", "a", "none"}) pairs.texts.push_back(text);
  pairs.text = toy.embed_text(pairs.texts);
  pairs.audio = pairs.text.clone();
  const RetrievalTable perfect = evaluate_retrieval(pairs, 0, 1);
  EXPECT_EQ(perfect.among, 8);
  EXPECT_EQ(perfect.text_to_audio.recall.at(0), 1);  // both "a" count as found
  EXPECT_NEAR(perfect.chance.recall.at(0), 1.0 / 8, 1e-12);
  EXPECT_EQ(evaluate_retrieval(pairs, 4, 1).audio_to_text.recall.at(0), 1);
  EXPECT_THROW(evaluate_retrieval(pairs, 9, 1), Error);
  // "a b" and "c d" hold two labels each, "none" holds none.
  const ZeroShotTable named = evaluate_zero_shot(pairs, ZeroShot(toy, {"a", "b", "c", "d"}, {"{}"}, 10));
  EXPECT_EQ(named.left_out, 3);
  EXPECT_EQ(named.confusion.sum().item<int64_t>(), 5);
  EXPECT_EQ(named.accuracy(), 1);
  EXPECT_NEAR(named.majority(), 2.0 / 5, 1e-12);
  pairs.audio = pairs.text.roll(1, 0);
  EXPECT_LT(evaluate_zero_shot(pairs, ZeroShot(toy, {"a", "b", "c", "d"}, {"{}"}, 10)).accuracy(), 0.5);
}

TEST(Story, PartsAreReadAndRefused) {
  const auto story = parse_story(" 0 a slow organ; 8.5: drums, fast\n12 bells ");
  ASSERT_EQ(story.size(), 3u);
  EXPECT_EQ(story[1].from_seconds, 8.5);
  EXPECT_EQ(story[1].text, "drums, fast");
  EXPECT_EQ(part_at(story, 8.4).text, "a slow organ");
  EXPECT_EQ(part_at(story, 8.5).text, "drums, fast");
  EXPECT_EQ(part_at(story, 100).text, "bells");
  for (const char* wrong : {"", "organ", "1 organ", "0 a; 0 b", "0 a; 5", "0 a; -1 b"})
    EXPECT_THROW(parse_story(wrong), Error) << wrong;
}

TEST(Story, WindowsCoverThePieceOnce) {
  LongPieceConfig config;
  config.window_seconds = 4;
  config.overlap_seconds = 1;
  config.story = parse_story("0 a; 5 b");
  const auto windows = plan_windows(12, "", config);
  double at = 0;
  for (const PieceWindow& window : windows) {
    EXPECT_NEAR(window.begin_seconds, at, 1e-9);
    EXPECT_LE(window.seconds, at == 0 ? 4 : 3 + 1e-9);
    EXPECT_EQ(window.text, window.begin_seconds < 5 ? "a" : "b");
    at += window.seconds;
  }
  EXPECT_NEAR(at, 12, 1e-9);
  EXPECT_EQ(plan_windows(12, "x", {}).size(), 1u);
  config.overlap_seconds = 4;
  EXPECT_THROW(plan_windows(12, "x", config), Error);
}

TEST(WordTokenizer, CaseAndPunctuationDoNotMatter) {
  const WordTokenizer words;
  EXPECT_EQ(words.pieces("A slow, sad ORGAN."), words.pieces("a slow sad organ"));
  EXPECT_EQ(words.pieces("120 beats").size(), 2u);
  EXPECT_NE(words.pieces("bell"), words.pieces("bass"));
  EXPECT_TRUE(words.pieces(" ,.!").empty());
  for (const int64_t id : words.pieces("Größe и звук")) {
    EXPECT_GE(id, 2);
    EXPECT_LT(id, words.vocabulary());
  }
  EXPECT_EQ(words.pieces("Größe и звук").size(), 3u);
}

}  // namespace musiclm_tool_test
}  // namespace melete::musiclm

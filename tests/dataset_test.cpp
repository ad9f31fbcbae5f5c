#include "data/recordings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/base/random.h"
#include "data/loader.h"
#include "io/base/audio_file.h"
#include "io/base/safetensors.h"

namespace melete {
namespace dataset_test {

namespace fs = std::filesystem;

std::string golden_root() {
  const char* set = std::getenv("MELETE_GOLDEN");
  for (const std::string& root :
       {std::string(set ? set : ""), std::string("../shared/golden"), std::string("../../shared/golden"),
        std::string("tests/golden"), std::string("../tests/golden")})
    if (!root.empty() && fs::exists(root + "/audiolm")) return root + "/audiolm";
  return {};
}

// A folder of recordings that goes away with the test.
class Recordings {
 public:
  Recordings() {
    char name[] = "/tmp/melete_dataset_XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Recordings() { fs::remove_all(folder_); }

  ManifestEntry add(const std::string& name, int64_t frames, int rate_hz, int channels = 1) {
    Rng rng(random_key(1, name));
    std::vector<float> samples(static_cast<size_t>(frames * channels));
    for (float& sample : samples) sample = static_cast<float>(rng.uniform(-0.9, 0.9));
    write_audio(path(name), samples, rate_hz, channels);
    return {path(name), static_cast<double>(frames) / rate_hz, frames, rate_hz, channels, "text of " + name};
  }
  ManifestEntry add_broken(const std::string& name) {
    std::ofstream(path(name)) << "this is not sound";
    return {path(name), 1.0, 16000, 16000, 1, ""};
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

std::vector<ManifestEntry> several(Recordings& recordings, int count, int64_t frames = 500) {
  std::vector<ManifestEntry> entries;
  for (int i = 0; i < count; ++i)
    entries.push_back(recordings.add(fmt::format("{:03}.wav", i), frames + 37 * (i % 5), 16000));
  return entries;
}

RecordingsConfig segments(int64_t samples, int64_t workers = 0) {
  RecordingsConfig config;
  config.segment_samples = samples;
  config.workers = workers;
  return config;
}

void expect_equal(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(a.words("path"), b.words("path"));
  EXPECT_EQ(a.words("text"), b.words("text"));
  for (size_t rate = 0; a.has(wave_column(rate)) || b.has(wave_column(rate)); ++rate) {
    EXPECT_TRUE(a[wave_column(rate)].equal(b[wave_column(rate)]));
    EXPECT_TRUE(a.lengths(wave_column(rate)).equal(b.lengths(wave_column(rate))));
  }
}

TEST(Dataset, EqualsUpstreamSoundDataset) {
  const std::string root = golden_root();
  if (root.empty()) GTEST_SKIP() << "no reference values here";
  int cases = 0;
  for (const char* name : {"sound_dataset", "sound_dataset_nomax", "sound_dataset_two_rates"}) {
    const fs::path folder = fs::path(root) / name;
    if (!fs::exists(folder / "case.json")) continue;
    ++cases;
    const auto json = nlohmann::json::parse(std::ifstream(folder / "case.json"));
    const auto& settings = json["config"];
    RecordingsConfig config;
    const auto& rates = settings["target_sample_hz"];
    config.rates_hz =
        rates.is_array() ? rates.get<std::vector<int64_t>>() : std::vector{rates.get<int64_t>()};
    if (!settings["max_length"].is_null()) config.segment_samples = settings["max_length"];
    if (!settings["seq_len_multiple_of"].is_null()) config.multiple_of = {settings["seq_len_multiple_of"]};
    const SafetensorsFile file(folder / "io.safetensors");
    AudioDataset dataset(load_entries((folder / "files").string()), config);

    int64_t compared = 0;
    std::map<std::string, AudioItem> items;
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const std::string file_name = fs::path(dataset.entries()[static_cast<size_t>(i)].path).filename();
      const TensorBytes* start = file.find("rand." + file_name + ".start");
      const AudioItem item =
          dataset.read(i, start ? *reinterpret_cast<const int64_t*>(start->bytes.data()) : 0);
      items[file_name] = item;
      for (size_t rate = 0; rate < config.rates_hz.size(); ++rate) {
        const TensorBytes* expected = file.find(fmt::format("out.{}.{}", file_name, rate));
        ASSERT_NE(expected, nullptr) << name << " " << file_name;
        ASSERT_EQ(static_cast<int64_t>(item.waves[rate].size()), expected->shape[0])
            << name << " " << file_name;
        const auto* values = reinterpret_cast<const float*>(expected->bytes.data());
        for (size_t k = 0; k < item.waves[rate].size(); ++k)
          ASSERT_NEAR(item.waves[rate][k], values[k], 1e-5) << name << " " << file_name << " sample " << k;
        ++compared;
      }
    }
    EXPECT_GT(compared, 0);

    // The order that the collated batches were made in is told in a note.
    const std::string note = json["notes"][2];
    std::vector<Item> ordered;
    std::istringstream words(note.substr(note.find("order: ") + 7));
    for (std::string word; std::getline(words, word, ',');)
      ordered.push_back(AudioItem(items.at(word.substr(word.find_first_not_of(' ')))).item());
    for (const bool pad : {true, false}) {
      const TensorBytes* expected =
          file.find(pad ? "out.collate_pad_to_longest" : "out.collate_curtail_to_shortest");
      ASSERT_NE(expected, nullptr);
      const at::Tensor wave = collate(ordered, pad ? Pad::longest : Pad::curtail)["wave"];
      ASSERT_EQ(wave.sizes().vec(), expected->shape) << name;
      const at::Tensor values =
          at::from_blob(const_cast<std::byte*>(expected->bytes.data()), expected->shape, at::kFloat);
      EXPECT_LT((wave - values).abs().max().item<double>(), 1e-5) << name;
    }
  }
  EXPECT_GT(cases, 0);
}

TEST(Dataset, SegmentEqualsWholeFile) {
  Recordings recordings;
  const std::vector<ManifestEntry> entries = {
      recordings.add("mono.wav", 3000, 16000), recordings.add("stereo.wav", 5000, 44100, 2),
      recordings.add("up.flac", 2000, 8000), recordings.add("three.wav", 3001, 22050, 3),
      recordings.add("music.ogg", 30000, 44100, 2)};
  RecordingsConfig whole_config, segment_config = segments(700);
  whole_config.rates_hz = segment_config.rates_hz = {16000};
  const AudioDataset whole(entries, whole_config), segment(entries, segment_config);
  Rng rng(5);
  for (int64_t i = 0; i < whole.size(); ++i) {
    const AudioItem all = whole.read(i, 0);
    ASSERT_EQ(static_cast<int64_t>(all.waves[0].size()), whole.length_samples(i));
    const int64_t last = whole.length_samples(i) - 700;
    for (const int64_t start : {int64_t{0}, last, rng.integer(0, last), rng.integer(0, last)}) {
      const AudioItem part = segment.read(i, start);
      ASSERT_EQ(part.waves[0].size(), 700u);
      for (size_t k = 0; k < 700; ++k)
        ASSERT_EQ(part.waves[0][k], all.waves[0][static_cast<size_t>(start) + k])
            << part.path << " from " << start << " sample " << k;
    }
    EXPECT_THROW(segment.read(i, last + 1), Error);
    EXPECT_THROW(segment.read(i, -1), Error);
  }
}

TEST(Dataset, ShortFilesArePaddedAndLengthsSaySo) {
  Recordings recordings;
  RecordingsConfig config = segments(1000);
  config.rates_hz = {16000, 8000};
  config.multiple_of = {64, 30};
  const AudioDataset dataset({recordings.add("short.wav", 300, 16000)}, config);
  EXPECT_EQ(dataset.start_count(0), 1);
  const AudioItem item = dataset.read(0, 0);
  EXPECT_EQ(item.waves[0].size(), 960u);
  EXPECT_EQ(item.waves[1].size(), 480u);
  EXPECT_EQ(item.lengths, (std::vector<int64_t>{300, 150}));
  for (size_t i = 300; i < 960; ++i) ASSERT_EQ(item.waves[0][i], 0.0f);
  EXPECT_EQ(item.text, "text of short.wav");
}

TEST(Dataset, DrawIsAFunctionOfSeedEpochAndIndex) {
  Recordings recordings;
  AudioDataset dataset(several(recordings, 4, 5000), segments(100));
  const at::Tensor one = dataset.draw(1, 2, 3).find("wave")->values;
  EXPECT_TRUE(one.equal(dataset.draw(1, 2, 3).find("wave")->values));
  EXPECT_FALSE(one.equal(dataset.draw(1, 3, 3).find("wave")->values));
  EXPECT_FALSE(one.equal(dataset.draw(2, 2, 3).find("wave")->values));
}

TEST(Dataset, BrokenFilesAreNamedOnceCountedAndReplaced) {
  Recordings recordings;
  std::vector<ManifestEntry> entries = several(recordings, 8);
  entries.push_back(recordings.add_broken("broken.wav"));
  entries.push_back({recordings.path("missing.wav"), 1, 16000, 16000, 1, ""});
  RecordingsConfig config = segments(200);
  config.max_failed_share = 0.5;
  std::map<std::string, int> named;
  AudioDataset dataset(entries, config, [&](const std::string& path, const std::string& message) {
    ++named[path];
    EXPECT_FALSE(message.empty());
  });
  std::set<std::string> replacements;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    const Item item = dataset.draw(7, epoch, 8);
    EXPECT_TRUE(item.find("wave")->values.equal(dataset.draw(7, epoch, 8).find("wave")->values));
    EXPECT_NE(item.words.at("path"), entries[8].path);
    replacements.insert(item.words.at("path"));
    EXPECT_NE(dataset.draw(7, epoch, 9).words.at("path"), entries[9].path);
  }
  EXPECT_GT(replacements.size(), 2u);
  EXPECT_EQ(named, (std::map<std::string, int>{{entries[8].path, 1}, {entries[9].path, 1}}));
  EXPECT_EQ(dataset.failed_files(), 2);
}

TEST(Dataset, TooManyBrokenFilesStopTheRun) {
  Recordings recordings;
  std::vector<ManifestEntry> entries = several(recordings, 8);
  for (int i = 0; i < 4; ++i) entries.push_back(recordings.add_broken(fmt::format("broken{}.wav", i)));
  RecordingsConfig config = segments(200);
  config.max_failed_share = 0.2;
  AudioDataset dataset(entries, config);
  const auto all = [&] {
    for (int64_t i = 0; i < dataset.size(); ++i) dataset.draw(1, 0, i);
  };
  try {
    all();
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("20 %"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("data check"), std::string::npos) << error.what();
  }
  config.max_failed_share = 1;
  AudioDataset nothing({recordings.add_broken("only.wav")}, config);
  EXPECT_THROW(nothing.draw(1, 0, 0), Error);
}

TEST(Dataset, AFileThatChangedSinceItWasIndexedIsRefused) {
  Recordings recordings;
  ManifestEntry entry = recordings.add("a.wav", 1000, 16000);
  entry.rate_hz = 8000;
  EXPECT_THROW(AudioDataset({entry}, segments(100)).read(0, 0), Error);
  entry.rate_hz = 16000;
  entry.frames = 5000;
  EXPECT_THROW(AudioDataset({entry}, segments(100)).read(0, 4500), Error);
  entry.frames = 0;  // not known: looked up
  EXPECT_EQ(AudioDataset({entry}, segments(100)).length_samples(0), 1000);
}

TEST(Dataset, SettingsThatContradictEachOtherAreRefused) {
  Recordings recordings;
  const std::vector<ManifestEntry> entries = several(recordings, 1);
  RecordingsConfig config = segments(100);
  config.segment_seconds = 1;
  EXPECT_THROW(AudioDataset(entries, config), Error);
  config = segments(100);
  config.multiple_of = {160};
  EXPECT_THROW(AudioDataset(entries, config), Error);
  config.multiple_of = {1, 2, 3};
  EXPECT_THROW(AudioDataset(entries, config), Error);
  config = segments(100);
  config.rates_hz = {};
  EXPECT_THROW(AudioDataset(entries, config), Error);
  EXPECT_THROW(AudioDataset({}, segments(100)), Error);
}

TEST(Dataset, SplitIsDisjointCompleteAndKeepsToTheSeed) {
  std::vector<ManifestEntry> entries;
  for (int i = 0; i < 40; ++i) entries.push_back({fmt::format("{:02}", i), 1, 16000, 16000, 1, ""});
  const Split one = split(entries, 0.1, 5);
  EXPECT_EQ(one.valid.size(), 4u);
  std::set<std::string> all;
  for (const auto& side : {one.train, one.valid})
    for (const ManifestEntry& entry : side) EXPECT_TRUE(all.insert(entry.path).second);
  EXPECT_EQ(all.size(), 40u);

  const auto paths = [](const std::vector<ManifestEntry>& side) {
    std::set<std::string> result;
    for (const ManifestEntry& entry : side) result.insert(entry.path);
    return result;
  };
  std::vector<ManifestEntry> reversed(entries.rbegin(), entries.rend());
  EXPECT_EQ(paths(split(reversed, 0.1, 5).valid), paths(one.valid));
  EXPECT_NE(paths(split(entries, 0.1, 6).valid), paths(one.valid));
  EXPECT_EQ(split(entries, 0, 5).valid.size(), 0u);
  entries.resize(2);
  EXPECT_EQ(split(entries, 0.01, 5).valid.size(), 1u);
  EXPECT_EQ(split(entries, 0.99, 5).train.size(), 1u);
}

TEST(Loader, EpochsAreCompleteAndDiffer) {
  Recordings recordings;
  const auto dataset = std::make_shared<AudioDataset>(several(recordings, 12), segments(100, 2));
  BatchLoader loader(dataset, dataset->config(), 9, {3});
  EXPECT_EQ(loader.batches_per_epoch(), 4);
  std::vector<std::vector<std::string>> epochs(3);
  for (int64_t number = 0; number < 12; ++number) {
    const Batch batch = loader.batch(number);
    EXPECT_EQ(batch.number, number);
    EXPECT_EQ(batch["wave"].sizes(), at::IntArrayRef({3, 100}));
    for (const std::string& path : batch.words("path"))
      epochs[static_cast<size_t>(loader.epoch_of(number))].push_back(path);
  }
  for (const auto& epoch : epochs) EXPECT_EQ(std::set<std::string>(epoch.begin(), epoch.end()).size(), 12u);
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(Loader, ASmallSetNeverStarves) {
  Recordings recordings;
  const auto dataset = std::make_shared<AudioDataset>(several(recordings, 2), segments(100, 1));
  BatchLoader loader(dataset, dataset->config(), 1, {5});
  const Batch batch = loader.batch(3);
  EXPECT_EQ(batch["wave"].size(0), 5);
  EXPECT_EQ(std::set<std::string>(batch.words("path").begin(), batch.words("path").end()).size(), 2u);
}

TEST(Loader, WorkersDoNotChangeWhatComesOut) {
  Recordings recordings;
  const std::vector<ManifestEntry> entries = several(recordings, 7, 300);
  RecordingsConfig config = segments(0);
  config.rates_hz = {16000, 8000};
  BatchLoader alone(std::make_shared<AudioDataset>(entries, config), config, 4, {3});
  for (const int64_t workers : {1, 2, 5}) {
    config.workers = workers;
    config.prefetch = workers == 2 ? 1 : 6;
    BatchLoader loader(std::make_shared<AudioDataset>(entries, config), config, 4, {3});
    for (int64_t number = 0; number < 12; ++number) expect_equal(loader.batch(number), alone.batch(number));
    EXPECT_GE(loader.wait_seconds(), 0.0);
  }
}

TEST(Loader, RestartsAtAnyNumber) {
  Recordings recordings;
  const std::vector<ManifestEntry> entries = several(recordings, 7);
  BatchLoader alone(std::make_shared<AudioDataset>(entries, segments(100)), segments(100), 4, {2});
  BatchLoader loader(std::make_shared<AudioDataset>(entries, segments(100, 3)), segments(100, 3), 4, {2});
  for (const int64_t number : {0, 1, 2, 17, 18, 3, 3, 3, 4, 6, 5, 1000, 0, 2, 1})
    expect_equal(loader.batch(number), alone.batch(number));
  EXPECT_THROW(loader.batch(-1), Error);
}

TEST(Loader, RanksAreDisjointAndTogetherTheWholeBatch) {
  Recordings recordings;
  const auto dataset = std::make_shared<AudioDataset>(several(recordings, 12), segments(100, 1));
  BatchLoader whole(dataset, dataset->config(), 3, {6});
  std::vector<std::unique_ptr<BatchLoader>> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(std::make_unique<BatchLoader>(dataset, dataset->config(), 3, BatchShare{2, rank, 3}));
  for (int64_t number = 0; number < 5; ++number) {
    std::vector<at::Tensor> parts;
    std::vector<std::string> paths;
    for (const auto& rank : ranks) {
      const Batch part = rank->batch(number);
      parts.push_back(part["wave"]);
      paths.insert(paths.end(), part.words("path").begin(), part.words("path").end());
    }
    const Batch all = whole.batch(number);
    EXPECT_TRUE(at::cat(parts).equal(all["wave"]));
    EXPECT_EQ(paths, all.words("path"));
    EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()).size(), 6u);
  }
  EXPECT_THROW(BatchLoader(dataset, dataset->config(), 3, {2, 3, 3}), Error);
  EXPECT_THROW(BatchLoader(dataset, dataset->config(), 3, {0}), Error);
}

TEST(Loader, PadsOrCurtails) {
  Recordings recordings;
  const std::vector<ManifestEntry> entries = {recordings.add("a.wav", 300, 16000),
                                              recordings.add("b.wav", 200, 16000)};
  RecordingsConfig config = segments(0);
  BatchLoader padded(std::make_shared<AudioDataset>(entries, config), config, 1, {2});
  const Batch longest = padded.batch(0);
  EXPECT_EQ(longest["wave"].sizes(), at::IntArrayRef({2, 300}));
  const int64_t short_row = longest.lengths("wave")[0].item<int64_t>() == 200 ? 0 : 1;
  EXPECT_EQ(longest.lengths("wave").sum().item<int64_t>(), 500);
  EXPECT_EQ(longest["wave"][short_row].slice(0, 200).abs().sum().item<double>(), 0.0);
  config.pad = "curtail";
  BatchLoader curtailed(std::make_shared<AudioDataset>(entries, config), config, 1, {2});
  const Batch shortest = curtailed.batch(0);
  EXPECT_TRUE(shortest["wave"].equal(longest["wave"].slice(1, 0, 200)));
  EXPECT_EQ(shortest.lengths("wave").min().item<int64_t>(), 200);
  EXPECT_EQ(shortest.lengths("wave").max().item<int64_t>(), 200);
}

TEST(Loader, ErrorsOfWorkersReachTheCaller) {
  Recordings recordings;
  std::vector<ManifestEntry> entries = several(recordings, 3);
  for (int i = 0; i < 3; ++i) entries.push_back(recordings.add_broken(fmt::format("broken{}.wav", i)));
  const auto dataset = std::make_shared<AudioDataset>(entries, segments(100, 3));
  BatchLoader loader(dataset, dataset->config(), 1, {6});
  EXPECT_THROW(loader.batch(0), Error);
  EXPECT_THROW(loader.batch(1), Error);
}

TEST(Loader, CanBeDestroyedAtAnyMoment) {
  Recordings recordings;
  const auto dataset = std::make_shared<AudioDataset>(several(recordings, 5), segments(100, 4));
  for (int repeat = 0; repeat < 30; ++repeat) {
    BatchLoader loader(dataset, dataset->config(), 1, {4});
    if (repeat % 3 > 0) loader.batch(repeat);
  }
}

}  // namespace dataset_test
}  // namespace melete

// Resampling and the sound dataset.
#include <filesystem>

#include "core/base/error.h"
#include "data/recordings.h"
#include "golden.h"
#include "io/base/audio_file.h"
#include "io/base/resample.h"

namespace melete::golden::cases_data {

namespace {

namespace fs = std::filesystem;

at::Tensor to_tensor(const std::vector<float>& values) {
  return at::tensor(values, at::kFloat);
}

void check_resample(const Case& c, Checker& check) {
  expect_only(c.config, {"pairs", "lowpass_filter_width", "rolloff", "method"});
  for (const auto& pair : c.config.at("pairs")) {
    const int from = pair[0].get<int>(), to = pair[1].get<int>();
    const std::string name = fmt::format("{}_to_{}", from, to);
    const Resampler resampler(from, to, c.config.value("lowpass_filter_width", 6),
                              c.config.value("rolloff", 0.99));
    std::vector<at::Tensor> rows;
    for (const at::Tensor& row : c.in(c.has("in." + name) ? name : "audio").unbind(0))
      rows.push_back(to_tensor(resampler.run({row.data_ptr<float>(), static_cast<size_t>(row.numel())})));
    check.close(name, at::stack(rows), c.out(name));
  }
}

// A null entry is 0: that rate is not cut.
std::vector<int64_t> list_or_one(const nlohmann::ordered_json& value) {
  if (value.is_null()) return {};
  if (!value.is_array()) return {value.get<int64_t>()};
  std::vector<int64_t> list;
  for (const auto& entry : value) list.push_back(entry.is_null() ? 0 : entry.get<int64_t>());
  return list;
}

// The file order of the collated batches is in a note: "...in the order: b.wav, a.wav"
std::vector<std::string> collate_order(const Case& c) {
  std::vector<std::string> order;
  for (const auto& note : c.json.at("notes")) {
    const std::string text = note.get<std::string>();
    const auto at = text.find("in the order: ");
    if (at == std::string::npos) continue;
    std::string rest = text.substr(at + 14);
    for (size_t comma = 0; comma != std::string::npos;
         rest = rest.substr(comma == std::string::npos ? 0 : comma + 2)) {
      comma = rest.find(", ");
      order.push_back(rest.substr(0, comma));
    }
  }
  return order;
}

void check_dataset(const Case& c, Checker& check) {
  expect_only(c.config, {"target_sample_hz", "seq_len_multiple_of", "max_length", "exts"});
  RecordingsConfig config;
  config.rates_hz = list_or_one(c.config.at("target_sample_hz"));
  config.multiple_of = list_or_one(c.config.value("seq_len_multiple_of", nlohmann::ordered_json()));
  const auto longest = c.config.value("max_length", nlohmann::ordered_json());
  config.segment_samples = longest.is_null() ? 0 : longest.get<int64_t>();
  const AudioDataset dataset(load_entries((fs::path(c.folder) / "files").string()), config);

  std::map<std::string, AudioItem> items;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const std::string file = fs::path(dataset.entries()[static_cast<size_t>(i)].path).filename().string();
    const std::string start = "rand." + file + ".start";
    items[file] = dataset.read(i, c.has(start) ? c.get(start).item<int64_t>() : 0);
    for (size_t rate = 0; rate < config.rates_hz.size(); ++rate) {
      const std::string name = fmt::format("{}.{}", file, rate);
      if (c.has("out." + name)) check.close(name, to_tensor(items[file].waves[rate]), c.out(name));
    }
  }
  std::vector<Item> ordered;
  for (const std::string& file : collate_order(c)) ordered.push_back(AudioItem(items.at(file)).item());
  check.close("collate_pad_to_longest", collate(ordered)["wave"], c.out("collate_pad_to_longest"));
  check.close("collate_curtail_to_shortest", collate(ordered, Pad::curtail)["wave"],
              c.out("collate_curtail_to_shortest"));
}

const bool registered = register_case("audiolm", "torchaudio.functional.resample", check_resample) &&
                        register_case("voicebox", "torchaudio.functional.resample", check_resample) &&
                        register_case("audiolm", "SoundDataset", check_dataset);

}  // namespace

}  // namespace melete::golden::cases_data

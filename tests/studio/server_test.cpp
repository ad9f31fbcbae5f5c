// The server as a client meets it: over a socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/temporary_folder.h"
#include "core/base/error.h"
#include "io/base/audio_stream.h"
#include "io/base/png.h"
#include "studio/run_folder.h"
#include "studio/server.h"

namespace melete {
namespace studio_server_test {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

int64_t memory_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6));
  return 0;
}

int64_t open_files() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

// A folder with two runs, a secret beside it, and a server over it.
class StudioServer : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path all = fs::canonical(folder_.path());
    root_ = all / "runs";
    make_run(root_ / "a", 20);
    make_run(root_ / "b c", 3);
    append(all / "secret.txt", "secret");
    fs::create_symlink(all / "secret.txt", root_ / "a" / "samples" / "link.txt");
    fs::create_directory_symlink(all, root_ / "a" / "up");
    open();
  }
  void open(const std::string& token = "", double body_seconds = 60, double header_seconds = 5,
            double answer_bytes_per_second = 8 << 10) {
    StudioOptions options;
    options.header_seconds = header_seconds;
    options.answer_seconds = 3;
    options.answer_bytes_per_second = answer_bytes_per_second;
    options.folder = root_.string();
    options.body_seconds = body_seconds;
    options.token = token;
    options.program = "/bin/sh";
    options.tools = {{"shell",
                      "a shell that stands for the program",
                      {"-c", "echo 'words: 50% (1/2)'; cp /dev/null \"$1\""},
                      {".txt"},
                      ordered_json::array()}};
    studio_ = std::make_unique<Studio>(options);
    thread_ = std::thread([this] { studio_->serve(); });
    client_ = std::make_unique<httplib::Client>("127.0.0.1", studio_->port());
    client_->set_read_timeout(10);
    for (int i = 0; i < 200; ++i) {  // until the runs have been read
      const auto runs =
          client_->Get("/api/runs", token.empty() ? httplib::Headers{}
                                                  : httplib::Headers{{"Authorization", "Bearer " + token}});
      if (runs && runs->status == 200 && ordered_json::parse(runs->body).size() == 2 &&
          ordered_json::parse(runs->body)[0]["state"] == "finished")
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    FAIL() << "the runs were not found";
  }
  void close() {
    studio_->stop();
    if (thread_.joinable()) thread_.join();
    studio_.reset();
  }
  void TearDown() override { close(); }

  ordered_json get(const std::string& path, int status = 200) {
    const auto response = client_->Get(path);
    EXPECT_TRUE(response) << path;
    if (!response) return nullptr;
    EXPECT_EQ(response->status, status) << path << " " << response->body;
    return ordered_json::parse(response->body, nullptr, false);
  }
  int connect_to_studio(int buffer = 0) const {  // a socket; -1: it could not
    const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
    if (buffer > 0) ::setsockopt(connection, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(studio_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return connection;
    ::close(connection);
    return -1;
  }
  // The bytes as they are, without what a client would mend; the whole answer.
  std::string raw(const std::string& bytes, bool wait = true) {
    const int connection = connect_to_studio();
    std::string answer;
    if (connection >= 0) {
      (void)!::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ::shutdown(connection, SHUT_WR);
      const timeval limit{5, 0};
      ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      char buffer[4096];
      for (ssize_t count; wait && (count = ::recv(connection, buffer, sizeof buffer, 0)) > 0;)
        answer.append(buffer, static_cast<size_t>(count));
      ::close(connection);
    }
    return answer;
  }
  std::string raw_get(const std::string& target) {
    return raw("GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  }

  TemporaryFolder folder_;
  fs::path root_;
  std::unique_ptr<Studio> studio_;
  std::thread thread_;
  std::unique_ptr<httplib::Client> client_;
};

TEST_F(StudioServer, ServesThePageAndTheRuns) {
  const auto page = client_->Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  EXPECT_THAT(page->body, HasSubstr("melete studio"));
  EXPECT_EQ(get("/api/run?run=a")["steps_total"], 20);
  EXPECT_EQ(get("/api/run?run=b%20c")["steps_total"], 3);
  get("/api/run?run=none", 404);
  get("/api/nothing", 404);
  const auto curves =
      client_->Post("/api/curves", R"({"runs":["a","b c","no"],"series":["loss/loss","none"],"points":100})",
                    "application/json");
  ASSERT_TRUE(curves);
  const auto all = ordered_json::parse(curves->body)["curves"];
  EXPECT_EQ(all.size(), 2u);
  EXPECT_EQ(all["a"]["loss/loss"]["x"].size(), 20u);
  EXPECT_EQ(get("/api/samples?run=a")[0]["versions"].size(), 3u);
  EXPECT_TRUE(get("/api/tables?run=a").is_array());
  EXPECT_TRUE(get("/api/learning-rates?run=a").is_object());
  EXPECT_EQ(get("/api/expected?run=a"), ordered_json::object());  // nothing was measured
  get("/api/expected?run=../a", 404);
}

TEST_F(StudioServer, RowsGoOnFromAByte) {
  const auto first = client_->Get("/api/rows?run=b%20c&from=0");
  ASSERT_TRUE(first);
  const std::string next = first->get_header_value("X-Next-Offset");
  EXPECT_EQ(std::stoll(next), static_cast<int64_t>(first->body.size()));
  append(root_ / "b c" / "metrics.jsonl", "{\"kind\":\"note\"}\n{\"half");
  const auto more = client_->Get("/api/rows?run=b%20c&from=" + next);
  EXPECT_EQ(more->body, "{\"kind\":\"note\"}\n");
  get("/api/rows?run=b%20c&from=x", 400);
}

TEST_F(StudioServer, FilesInsideTheFolderOnly) {
  const std::string path = "/files/a/samples/step_00000020/0_piece_ema.flac";
  const auto sound = client_->Get(path);
  ASSERT_TRUE(sound);
  EXPECT_EQ(sound->status, 200);
  EXPECT_EQ(sound->get_header_value("Content-Type"), "audio/flac");
  EXPECT_EQ(sound->body.substr(0, 4), "fLaC");
  for (const std::string& bad : std::vector<std::string>{"/files/../secret.txt",
                                                         "/files/..%2fsecret.txt",
                                                         "/files/%2e%2e/secret.txt",
                                                         "/files/%2e%2e%2fsecret.txt",
                                                         "/files/a/../../secret.txt",
                                                         "/files/a%2f..%2f..%2fsecret.txt",
                                                         "/files//etc/passwd",
                                                         "/files/%2fetc%2fpasswd",
                                                         "/files/a/samples/link.txt",
                                                         "/files/a/up/secret.txt",
                                                         "/files/..%5csecret.txt",
                                                         "/files/%252e%252e%252fsecret.txt",
                                                         "/files/a%00/../secret.txt",
                                                         "/files/",
                                                         "/files/a",
                                                         "/files/a/.lock",
                                                         "/../secret.txt",
                                                         "/files/%",
                                                         "/files/%zz",
                                                         "/files/%c0%ae%c0%ae/secret.txt",
                                                         "/files/" + std::string(7000, 'a'),
                                                         "/api/opus?path=../secret.txt",
                                                         "/api/opus?path=/etc/passwd",
                                                         "/api/run?run=..",
                                                         "/api/samples?run=../",
                                                         "/api/rows?run=a/../..&from=0"}) {
    const std::string answer = raw_get(bad);
    EXPECT_EQ(answer.find("HTTP/1.1 200"), std::string::npos) << bad.substr(0, 60) << answer.substr(0, 200);
    EXPECT_EQ(answer.find("root:"), std::string::npos) << bad;
    EXPECT_EQ(answer.find("\r\n\r\nsecret"), std::string::npos) << bad;
  }
}

TEST_F(StudioServer, PagesOfOtherSitesAreRefused) {
  const auto with = [&](const httplib::Headers& headers) {
    return client_->Get("/api/runs", headers)->status;
  };
  EXPECT_EQ(with({{"Origin", "http://evil.example"}}), 403);
  EXPECT_EQ(with({{"Host", "evil.example"}}), 403);
  EXPECT_EQ(with({{"Origin", "http://127.0.0.1:" + std::to_string(studio_->port())}}), 200);
  EXPECT_EQ(client_->Get("/api/runs")->get_header_value("Access-Control-Allow-Origin"), "");
}

TEST_F(StudioServer, TokenIsAskedForAndKeptByThePage) {
  close();
  open("hush");
  EXPECT_EQ(client_->Get("/")->status, 401);
  EXPECT_EQ(client_->Get("/files/a/config.json")->status, 401);
  const auto page = client_->Get("/?token=hush");
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->get_header_value("Set-Cookie"), HasSubstr("melete_studio=hush"));
  EXPECT_THAT(page->get_header_value("Set-Cookie"), HasSubstr("HttpOnly"));
  EXPECT_EQ(client_->Get("/api/runs", {{"Cookie", "melete_studio=hush"}})->status, 200);
  StudioOptions open_to_all;
  open_to_all.folder = root_.string();
  open_to_all.address = "0.0.0.0";
  EXPECT_THROW(Studio{open_to_all}, UsageError);
}

TEST_F(StudioServer, TellsWhatIsNew) {
  std::string told;
  std::thread listener([&] {
    httplib::Client client("127.0.0.1", studio_->port());
    client.set_read_timeout(10);
    client.Get("/api/events", [&](const char* data, size_t count) {
      told.append(data, count);
      return told.find("\"step\":21") == std::string::npos;
    });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  append(root_ / "a" / "metrics.jsonl", step_row(21, 3000, "0.5"));
  listener.join();
  EXPECT_THAT(told, HasSubstr("event: runs\ndata: {\"runs\":["));
  EXPECT_THAT(told, HasSubstr("\"step\":21"));
  for (int i = 0; i < 100 && get("/api/status")["pages"] != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(get("/api/status")["pages"], 0);  // a page that is gone takes nothing
}

TEST_F(StudioServer, ThroughOpus) {
  const auto sound = client_->Get("/api/opus?path=a/samples/step_00000020/0_piece_original.flac&kbps=12");
  ASSERT_TRUE(sound);
  EXPECT_EQ(sound->status, 200);
  EXPECT_EQ(sound->body.substr(0, 4), "RIFF");
  EXPECT_EQ(sound->body.size(), 44u + 8000u * 2);
  get("/api/opus?path=a/samples/step_00000020/0_piece_original.flac&kbps=1", 400);
  get("/api/opus?path=a/config.json", 404);
}

TEST_F(StudioServer, UploadsAreReadAndWrittenAnew) {
  write_tone(fs::path(folder_.path()) / "voice.wav", 0.25);
  const std::string bytes = testing::read_bytes((fs::path(folder_.path()) / "voice.wav").string());
  const auto sent = client_->Post("/api/uploads?name=..%2F..%2Fmy%20voice.wav", bytes, "audio/wav");
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, 201) << sent->body;
  const std::string path = ordered_json::parse(sent->body)["path"];
  EXPECT_THAT(path, ::testing::StartsWith("studio/uploads/my_voice-"));
  EXPECT_EQ(read_audio((root_ / path).string()).frames(), 4000);
  for (const char* name : {"x.wav", "x.flac", "x.png", "x.exe", "x", ""})
    EXPECT_EQ(
        client_->Post(std::string("/api/uploads?name=") + name, "not what it says", "audio/wav")->status, 400)
        << name;
  EXPECT_EQ(client_->Post("/api/uploads?name=x.wav", bytes.substr(0, 30), "audio/wav")->status, 400);
  int64_t left = 0;
  for (const auto& entry : fs::directory_iterator(root_ / "studio" / "uploads"))
    left += entry.is_regular_file();
  EXPECT_EQ(left, 1);  // nothing of what was refused
  EXPECT_EQ(client_->Post("/api/blind", std::string(2 << 20, ' '), "application/json")->status, 413);
}

// A body that never stops coming, a byte at a time: no read waits long, and yet it ends.
TEST_F(StudioServer, SlowBodiesAreNotWaitedFor) {
  close();
  open("", 0.3);
  httplib::Client client("127.0.0.1", studio_->port());
  const auto begin = std::chrono::steady_clock::now();
  const auto answer = client.Post(
      "/api/uploads?name=x.wav", 1000,
      [](size_t, size_t, httplib::DataSink& sink) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return sink.write("x", 1);
      },
      "audio/wav");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  if (answer) {  // else the connection was closed before it was read
    EXPECT_EQ(answer->status, 408);
  }
  EXPECT_FALSE(fs::exists(root_ / "studio" / "uploads"));
  EXPECT_EQ(get("/api/runs").size(), 2u);
}

// More of them than there are places, each a byte at a time: nobody waits for them, and they do not last.
TEST_F(StudioServer, SlowHeadersHoldNoPlace) {
  close();
  open("", 60, 2);
  std::vector<int> slow(60);
  for (int& connection : slow) {
    connection = connect_to_studio();
    ASSERT_GE(connection, 0);
  }
  std::atomic<bool> stop{false};
  std::thread drip([&] {
    const std::string bytes = "GET /api/status HTTP/1.1\r\nX: " + std::string(1000, 'x');
    for (size_t i = 0; i < bytes.size() && !stop; ++i) {
      for (const int connection : slow) (void)!::send(connection, &bytes[i], 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    httplib::Client other("127.0.0.1", studio_->port());
    const auto answer = other.Get("/api/status");
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1000));
  }
  for (const int connection : slow) {
    const timeval limit{10, 0};
    ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char answer[200];
    const ssize_t count = ::recv(connection, answer, sizeof answer, 0);
    ASSERT_GT(count, 0);  // else it is still waited for
    EXPECT_EQ(std::string(answer, static_cast<size_t>(count)).substr(0, 12), "HTTP/1.1 408");
  }
  stop = true;
  drip.join();
  for (const int connection : slow) ::close(connection);
}

// More of them than there are places, each a few bytes at a time of an answer that no buffer holds.
TEST_F(StudioServer, SlowReadersHoldNoPlace) {
  close();
  append(root_ / "a" / "samples" / "long.flac", std::string(16 << 20, 'x'));
  open("", 60, 5, 1e9);
  const std::string asked = "GET /files/a/samples/long.flac HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::vector<int> slow(45);
  for (int& connection : slow) {
    connection = connect_to_studio(4096);
    ASSERT_GE(connection, 0);
    ASSERT_EQ(::send(connection, asked.data(), asked.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(asked.size()));
  }
  std::atomic<bool> stop{false};
  std::thread drip([&] {
    std::array<char, 400> bytes;
    while (!stop) {
      for (const int connection : slow) (void)!::recv(connection, bytes.data(), bytes.size(), MSG_DONTWAIT);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  httplib::Client other("127.0.0.1", studio_->port());
  other.set_read_timeout(30);
  const auto answer = other.Get("/api/status");
  EXPECT_TRUE(answer && answer->status == 200);
  stop = true;
  drip.join();
  for (const int connection : slow) ::close(connection);
}

// Lines and headers without an end: they are cut off before they take memory.
TEST_F(StudioServer, EndlessHeadersAreCutOff) {
  const int64_t memory_before = memory_kilobytes();
  for (const std::string& piece : {std::string(4096, 'x'), std::string("X: y\r\n")}) {
    const int connection = connect_to_studio();
    ASSERT_GE(connection, 0);
    const std::string begin = "GET /api/status HTTP/1.1\r\nHost: localhost\r\nA: ";
    (void)!::send(connection, begin.data(), begin.size(), MSG_NOSIGNAL);
    size_t sent = 0;
    constexpr size_t kMuch = 200 << 20;
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (sent < kMuch && std::chrono::steady_clock::now() < latest) {
      const ssize_t count = ::send(connection, piece.data(), piece.size(), MSG_NOSIGNAL);
      if (count < 0) break;  // it has been closed
      sent += static_cast<size_t>(count);
    }
    EXPECT_LT(std::chrono::steady_clock::now(), latest);
    ::close(connection);
  }
  EXPECT_LT(memory_kilobytes() - memory_before, 4 * 1024);
  EXPECT_THAT(raw("GET /api/status HTTP/1.1\r\nX: " + std::string(100'000, 'x')), HasSubstr("HTTP/1.1 431"));
  EXPECT_EQ(get("/api/runs").size(), 2u);
}

// A chunk's length is a line, too.
TEST_F(StudioServer, EndlessLinesInBodiesAreCutOff) {
  close();
  open("", 1);
  const int64_t memory_before = memory_kilobytes();
  const int connection = connect_to_studio();
  ASSERT_GE(connection, 0);
  const std::string begin =
      "POST /api/blind HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  (void)!::send(connection, begin.data(), begin.size(), MSG_NOSIGNAL);
  const std::string zeros(4096, '0');
  size_t sent = 0;
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (ssize_t count; std::chrono::steady_clock::now() < latest &&
                      (count = ::send(connection, zeros.data(), zeros.size(), MSG_NOSIGNAL)) > 0;)
    sent += static_cast<size_t>(count);
  EXPECT_LT(std::chrono::steady_clock::now(), latest);
  ::close(connection);
  EXPECT_LT(memory_kilobytes() - memory_before, 160 * 1024);
  EXPECT_EQ(get("/api/runs").size(), 2u);
}

// What follows a request that was refused is its body, whatever it looks like: a page of another site can
// make a browser send it, and the request inside would come without that site's name.
TEST_F(StudioServer, BodiesThatNobodyReadAreNoRequests) {
  const std::string inner =
      "POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{\"tool\":\"shell\"}";
  for (const std::string& padding : {std::string(), std::string(5000, ' ') + "\r\n\r\n"}) {
    const std::string body = padding + inner;
    const std::string answer =
        raw(fmt::format("POST /api/blind HTTP/1.1\r\nHost: localhost\r\nOrigin: "
                        "http://evil.example\r\nContent-Length: {}\r\n\r\n{}",
                        body.size(), body));
    EXPECT_THAT(answer, ::testing::StartsWith("HTTP/1.1 403"));
    EXPECT_EQ(answer.find("HTTP/1.1 ", 1), std::string::npos) << answer;
  }
  EXPECT_EQ(get("/api/jobs").size(), 0u);
  // Two requests at once are two.
  const std::string one = "GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string both =
      raw(one + "GET /api/kept HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(both, HasSubstr("\"version\""));
  EXPECT_THAT(both, ::testing::EndsWith("\r\n\r\n[]"));
}

// Minutes of silence on many channels are few bytes, and hundreds of megabytes of samples.
TEST_F(StudioServer, UploadsAreBoundedInSamplesAndMemory) {
  const auto silence = [&](const char* name, double seconds, int channels) {
    const std::string path = (fs::path(folder_.path()) / name).string();
    AudioWriter writer(path, 48000, channels);
    const std::vector<float> zeros(static_cast<size_t>(48000 * channels));
    for (int second = 0; second < seconds; ++second) writer.write(zeros);
    writer.commit();
    return testing::read_bytes(path);
  };
  client_->set_read_timeout(60);
  const auto send = [&](const std::string& bytes) {
    return client_->Post("/api/uploads?name=x.flac", bytes, "audio/flac");
  };
  std::string bomb = silence("bomb.flac", 300, 8);  // 115 million samples
  EXPECT_LT(bomb.size(), 2'000'000u);
  const auto refused = send(bomb);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 400);
  EXPECT_THAT(refused->body, HasSubstr("86 million samples"));
  // The same where its header does not say how long it is.
  bomb[21] = static_cast<char>(bomb[21] & 0xf0);
  for (int i = 22; i < 26; ++i) bomb[static_cast<size_t>(i)] = 0;
  EXPECT_EQ(send(bomb)->status, 400);
  // One that may come takes no more memory than its pieces.
  const std::string quiet = silence("quiet.flac", 200, 8);
  const int64_t memory_before = memory_kilobytes();
  const auto taken = send(quiet);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->status, 201) << taken->body;
  EXPECT_LT(memory_kilobytes() - memory_before, 64 * 1024);
  // A white picture of a hundred million pixels.
  Image white(10000, 10000);
  std::fill(white.rgb.begin(), white.rgb.end(), uint8_t{255});
  const std::string path = (fs::path(folder_.path()) / "white.png").string();
  write_png(path, white);
  const auto picture = client_->Post("/api/uploads?name=x.png", testing::read_bytes(path), "image/png");
  ASSERT_TRUE(picture);
  EXPECT_EQ(picture->status, 400);
  EXPECT_THAT(picture->body, HasSubstr("33 million pixels"));
}

TEST_F(StudioServer, BlindTestsAndJobs) {
  const auto kept = client_->Post(
      "/api/blind", R"({"kind":"abx","trials":[{"item":"i","a":"p","b":"q","x":"a","answer":"a"}]})",
      "application/json");
  EXPECT_EQ(kept->status, 201);
  EXPECT_EQ(get("/api/blind")["tests"].size(), 1u);
  EXPECT_EQ(client_->Post("/api/blind", "[", "application/json")->status, 400);
  EXPECT_EQ(get("/api/tools")[0]["name"], "shell");
  const auto job = client_->Post("/api/jobs", R"({"tool":"shell"})", "application/json");
  ASSERT_EQ(job->status, 202) << job->body;
  const std::string id = ordered_json::parse(job->body)["id"];
  for (int i = 0; i < 200 && get("/api/jobs/" + id)["state"] != "done"; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const ordered_json done = get("/api/jobs/" + id);
  EXPECT_EQ(done["results"][0], "studio/made/" + id + "/result.txt");
  EXPECT_EQ(client_->Get("/files/" + done["results"][0].get<std::string>())->status, 200);
  EXPECT_EQ(ordered_json::parse(client_->Delete("/api/jobs/" + id)->body)["state"], "done");  // too late
  EXPECT_EQ(client_->Delete("/api/jobs/1-1")->status, 404);
  EXPECT_EQ(client_->Post("/api/jobs", R"({"tool":"none"})", "application/json")->status, 404);
  EXPECT_EQ(client_
                ->Post("/v1/audio/speech", R"({"model":"tts-1","input":"hello","voice":"alloy"})",
                       "application/json")
                ->status,
            404);
  EXPECT_EQ(client_->Post("/v1/audio/speech", R"({"input":7})", "application/json")->status, 400);
  EXPECT_EQ(get("/v1/models")["data"].size(), 0u);
}

// A shell that copies a recording stands for the generator; what matters here is what it is told and what
// comes back.
TEST_F(StudioServer, SpeaksAsOpenAiDoes) {
  close();
  const fs::path spoken = fs::path(folder_.path()) / "spoken.wav",
                 heard = fs::path(folder_.path()) / "words.txt";
  write_tone(spoken, 0.5);
  const std::string saved = R"({"kind":"saved","step":2,"time":1500,"path":"x"})"
                            "\n";
  append(make_run(root_ / "tts", 2, "voicebox") / "metrics.jsonl", saved);
  append(make_run(root_ / "how-long", 2, "duration") / "metrics.jsonl", saved);
  const auto option = [](const char* name, const char* kind) {
    return ordered_json{{"name", name}, {"kind", kind}};
  };
  StudioOptions options;
  options.folder = root_.string();
  options.program = "/bin/sh";
  options.tools = {{"voicebox",
                    "speech",
                    {"-c", fmt::format("echo \"$0 $@\" > '{}'; for last; do :; done; cp '{}' \"$last\"",
                                       heard.string(), spoken.string())},
                    {".wav"},
                    {option("from", "run"), option("text", "text"), option("durations", "run"),
                     option("speed", "number")}}};
  options.speech = {
      {"voicebox", "voicebox", {{"durations", "duration"}, {"vocoder", "vocos"}}, "aligner", "aligner"}};
  studio_ = std::make_unique<Studio>(options);
  thread_ = std::thread([this] { studio_->serve(); });
  client_ = std::make_unique<httplib::Client>("127.0.0.1", studio_->port());
  client_->set_read_timeout(30);
  for (int i = 0; i < 200 && get("/v1/models")["data"].empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(get("/v1/models")["data"][0]["id"], "tts");
  for (const auto& [format, magic] : {std::pair{"wav", "RIFF"}, {"flac", "fLaC"}, {"opus", "OggS"}}) {
    const auto speech = client_->Post(
        "/v1/audio/speech",
        fmt::format(
            R"({{"model":"tts-1","input":"Hello there.","voice":"../x","response_format":"{}","speed":1.5}})",
            format),
        "application/json");
    ASSERT_TRUE(speech);
    EXPECT_EQ(speech->status, 200) << speech->body;
    EXPECT_EQ(speech->body.substr(0, 4), magic);
  }
  const std::string words = testing::read_bytes(heard.string());
  EXPECT_THAT(words, HasSubstr("--from=" + (root_ / "tts").string() + " --text=Hello there. --durations=" +
                               (root_ / "how-long").string() + " --speed=1.5 -o "));
  EXPECT_EQ(client_
                ->Post("/v1/audio/speech", R"({"model":"tts","input":"x","response_format":"mp3"})",
                       "application/json")
                ->status,
            400);
  EXPECT_EQ(
      client_->Post("/v1/audio/speech", R"({"model":"how-long","input":"x"})", "application/json")->status,
      404);
}

// The first half of the sound reaches the listener while the second does not exist yet.
TEST_F(StudioServer, SpeechIsSentWhileItIsMade) {
  close();
  const fs::path all = fs::canonical(folder_.path());
  std::vector<float> tone(16000);  // a half is more than a block of FLAC
  for (size_t i = 0; i < tone.size(); ++i)
    tone[i] = 0.5f * static_cast<float>(std::sin(2 * M_PI * 440 * static_cast<double>(i) / 16000));
  AudioStream wave("wav", 16000);
  append(all / "first", wave.push(std::span(tone).first(8000)));
  append(all / "second", wave.push(std::span(tone).subspan(8000)));
  write_audio((all / "whole.wav").string(), tone, 16000);
  append(make_run(root_ / "tts", 2, "voicebox") / "metrics.jsonl",
         R"({"kind":"saved","step":2,"time":1500,"path":"x"})"
         "\n");
  StudioOptions options;
  options.folder = root_.string();
  options.program = "/bin/sh";
  const auto option = [](const char* name, const char* kind) {
    return ordered_json{{"name", name}, {"kind", kind}};
  };
  options.tools = {{"voicebox",
                    "speech",
                    {"-c", "cd " + all.string() +
                               "; for word; do case $word in --stream=*) live=${word#--stream=};; esac; "
                               "[ \"$last\" = -o ] && out=$word; last=$word; done; "
                               "cat first > \"$live\"; while [ ! -e go ]; do sleep 0.02; done; "
                               "cat second >> \"$live\"; [ -e fail ] && exit 1; cp whole.wav \"$out\""},
                    {".wav"},
                    {option("from", "run"), option("text", "text")},
                    true}};
  options.speech = {{"voicebox", "voicebox", {}, "", ""}};
  studio_ = std::make_unique<Studio>(options);
  thread_ = std::thread([this] { studio_->serve(); });
  client_ = std::make_unique<httplib::Client>("127.0.0.1", studio_->port());
  for (int i = 0; i < 200 && get("/v1/models")["data"].empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));

  // What arrives; `hear` says whether to go on listening.
  const auto ask = [&](const std::string& format, const std::function<bool(const std::string&)>& hear) {
    std::string body;
    httplib::Request request;
    request.method = "POST";
    request.path = "/v1/audio/speech";
    request.body = R"({"input":"Hello. There.","response_format":")" + format + "\"}";
    request.content_receiver = [&](const char* data, size_t count, uint64_t, uint64_t) {
      body.append(data, count);
      return hear(body);
    };
    httplib::Client client("127.0.0.1", studio_->port());
    client.set_read_timeout(20);
    const auto answer = client.send(request);
    return std::pair(answer ? answer->status : -1, body);
  };
  // The second half is made when the first is heard.
  size_t early = 0;
  const auto ask_for_both = [&](const std::string& format) {
    fs::remove(all / "go");
    early = 0;
    return ask(format, [&](const std::string& so_far) {
      if (so_far.size() > 700 && early == 0) {
        early = so_far.size();
        append(all / "go", "x");
      }
      return true;
    });
  };
  for (const std::string format : {"wav", "flac", "opus"}) {
    const auto [status, body] = ask_for_both(format);
    EXPECT_EQ(status, 200);
    EXPECT_GT(early, 700u) << format;
    EXPECT_GT(body.size(), early) << format;
    const std::string file = (all / ("heard." + format)).string();
    std::ofstream(file, std::ios::binary) << body;
    const Audio heard = read_audio(file);
    EXPECT_EQ(heard.rate_hz, 16000) << format;
    ASSERT_EQ(heard.frames(), 16000) << format;
    if (format == "opus") continue;  // which is not exact
    for (size_t i = 0; i < tone.size(); ++i)
      ASSERT_NEAR(heard.samples[i], tone[i], 1.5 / 32768) << format << i;  // see audio_stream_test.cpp
  }
  EXPECT_FALSE(
      fs::exists(root_ / "studio" / "made" / get("/api/jobs")[0]["id"].get<std::string>() / ".live.wav"));
  EXPECT_EQ(get("/api/jobs")[0]["command"].get<std::string>().find("--stream=/"), std::string::npos);

  // A job that fails half-way has no end: the listener is told by a connection that breaks.
  append(all / "fail", "x");
  EXPECT_EQ(ask_for_both("wav").first, -1);
  EXPECT_GT(early, 700u);
  fs::remove(all / "fail");
  // Nobody listens any more: nothing is made for nobody.
  fs::remove(all / "go");
  ask("wav", [](const std::string&) { return false; });
  for (int i = 0; i < 300 && get("/api/jobs")[0]["state"] == "running"; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(get("/api/jobs")[0]["state"], "cancelled");
}

// Pages that stay open beside a run that goes on cost a part of a core at most, and no memory that grows.
TEST_F(StudioServer, TenPagesForThreeSeconds) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> told{0};
  std::vector<std::thread> pages;
  for (int i = 0; i < 10; ++i)
    pages.emplace_back([&] {
      httplib::Client client("127.0.0.1", studio_->port());
      client.set_read_timeout(10);
      client.Get("/api/events", [&](const char*, size_t) {
        ++told;
        return !stop;
      });
    });
  const auto a_while = [&](int from) {
    for (int i = from; i < from + 15; ++i) {
      append(root_ / "a" / "metrics.jsonl", step_row(100 + i, 5000 + i, "0.5"));
      client_->Post("/api/curves", R"({"runs":["a"],"series":["loss/loss"],"points":700})",
                    "application/json");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  };
  a_while(0);
  const int64_t memory_before = memory_kilobytes(), told_before = told;
  const std::clock_t cpu_before = std::clock();
  a_while(15);
  const double cores = static_cast<double>(std::clock() - cpu_before) / CLOCKS_PER_SEC / 1.5;
  RecordProperty("share_of_a_core_in_percent", static_cast<int>(100 * cores));
  EXPECT_LT(cores, 0.5);  // both ends
  EXPECT_LT(memory_kilobytes() - memory_before, 8 * 1024);
  EXPECT_GE(told - told_before, 20);
  stop = true;
  append(root_ / "a" / "metrics.jsonl", step_row(500, 6000, "0.5"));
  for (std::thread& page : pages) page.join();
}

// More pages than are told at once, and connections that say nothing: the rest is still answered.
TEST_F(StudioServer, ManyPagesLeaveRoomForOthers) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> pages;
  for (int i = 0; i < 24; ++i)
    pages.emplace_back([&] {
      httplib::Client client("127.0.0.1", studio_->port());
      client.set_read_timeout(20);
      client.Get("/api/events", [&](const char*, size_t) { return !stop; });
    });
  for (int i = 0; i < 200 && get("/api/status")["pages"] != 24; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(get("/api/status")["pages"], 24);
  EXPECT_EQ(client_->Get("/api/events")->status, 503);
  std::vector<int> silent(10);
  for (int& connection : silent) connection = connect_to_studio();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(get("/api/runs").size(), 2u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  for (const int connection : silent) ::close(connection);
  stop = true;
  append(root_ / "a" / "metrics.jsonl", step_row(21, 3000, "0.5"));
  for (std::thread& page : pages) page.join();
}

// Good requests with bytes changed, cut, doubled and put in; nothing leaks, nothing falls over.
TEST_F(StudioServer, TenThousandMalformedRequests) {
  const std::vector<std::string> good = {
      "GET /api/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
      "GET /files/a/config.json HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-10,5-\r\nConnection: "
      "close\r\n\r\n",
      "GET /api/run?run=a&x=%41%zz HTTP/1.1\r\nHost: localhost\r\nCookie: melete_studio=x; y\r\nConnection: "
      "close\r\n\r\n",
      "POST /api/curves HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 52\r\n\r\n"
      "{\"runs\":[\"a\"],\"series\":[\"loss/loss\"],\"points\":9e99}  ",
      "POST /api/blind HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: "
      "chunked\r\n\r\n5\r\n{\"a\":\r\nfffffffff\r\n",
      "POST /api/uploads?name=x.wav HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Encoding: "
      "gzip\r\nContent-Length: 20\r\n\r\n"
      "\x1f\x8b\x08 12345678901234567",
      "POST /api/uploads?name=x.png HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
      "multipart/form-data; boundary=\r\n"
      "Content-Length: 4\r\n\r\n--\r\n",
      "DELETE /api/jobs/1-1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
  std::mt19937 draw(7);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(draw); };
  raw(good[0]);
  const int64_t files_before = open_files();
  int64_t memory_before = 0;
  constexpr int kWarm = 3000, kRequests = 13000;  // at first the threads' heaps take what they need
  for (int i = 0; i < kRequests; ++i) {
    if (i == kWarm) memory_before = memory_kilobytes();
    std::string bytes = good[below(good.size())];
    for (size_t change = below(4); change-- > 0;) {
      const size_t at = below(bytes.size());
      switch (below(5)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes.resize(at + 1);
          break;
        case 2:
          bytes.insert(at, bytes.substr(at / 2, below(64)));
          break;
        case 3:
          bytes.insert(at, std::string(below(300), "\r\n:%/\0\xff"[below(7)]));
          break;
        default:
          bytes.erase(at, below(8));
          break;
      }
      if (bytes.empty()) bytes = "G";
    }
    // Most do not wait for an answer, as those who attack do not.
    raw(bytes, i % 8 == 0);
  }
  for (int i = 0; i < 200 && !client_->Get("/api/status"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(get("/api/runs").size(), 2u);
  // Connections that are still being closed count for a moment.
  for (int i = 0; i < 200 && open_files() > files_before + 4; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(open_files(), files_before + 4);
  const int64_t grown = memory_kilobytes() - memory_before;
  RecordProperty("grown_kilobytes", std::to_string(grown));
  EXPECT_LT(grown, 4 * 1024);  // less than half a kilobyte a request
}

}  // namespace studio_server_test
}  // namespace melete

import Testing

@testable import bench

struct ResidentMemoryTests {
    @Test("the pages of its own are the private ones, clean and dirty")
    func rollup() throws {
        let text = """
            55d0c0000000-7ffd00000000 ---p 00000000 00:00 0    [rollup]
            Rss:                2900 kB
            Pss:                 700 kB
            Shared_Clean:       2400 kB
            Private_Clean:       100 kB
            Private_Dirty:       300 kB

            """
        let memory = try #require(ResidentMemory(smapsRollup: text))
        #expect(memory.resident == 2900 * 1024)
        #expect(memory.own == 400 * 1024)
    }

    @Test("a text without the lines is no memory")
    func missing() {
        #expect(ResidentMemory(smapsRollup: "Rss: 2900 kB\n") == nil)
    }
}
